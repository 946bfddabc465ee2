/// Page tables, reference counts and free lists after a step, as dumps hold and comparisons read them.
#pragma once

#include <span>

#include "model/observation.hpp"
#include "oracle/lifetime/page_ledger.hpp"

namespace dsv4::oracle {

/// After PageLedger::end of the step. `held` is what the engine told of its own tables in this step (Engine::
/// held_tables): where it has another page than the allocator, its page counts.
TableState table_state(const PageLedger& ledger, const StepPlan& plan, std::span<const HeldTable> held);

}  // namespace dsv4::oracle
