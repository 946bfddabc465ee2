/// Page tables, reference counts and free lists after a step, as dumps hold and comparisons read them.
#pragma once

#include "model/observation.hpp"
#include "oracle/lifetime/page_ledger.hpp"

namespace dsv4::oracle {

/// After PageLedger::end of the step.
TableState table_state(const PageLedger& ledger, const StepPlan& plan);

}  // namespace dsv4::oracle
