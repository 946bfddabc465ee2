/// How large a dump will be before anything runs: raw bytes of every tensor that a plan publishes, from its
/// shapes. Widths that depend on data (the widest row of a step) are those the plan's positions give.
#pragma once

#include <cstdint>

#include "model/step_plan.hpp"
#include "oracle/selection.hpp"

namespace dsv4::oracle {

/// Elements of one row (token, entry or state row) of a tensor; `entries` is the number of compressed entries
/// that the step's last token sees.
std::int64_t row_elements(const RunConfig& config, int layer, TensorId id, std::int64_t entries);

/// Bytes of all selected tensors of one step, without file overhead.
std::int64_t step_bytes(const RunConfig& config, const StepPlan& step, const Selection& selection);

/// Sum over the selected steps of a plan.
std::int64_t dump_bytes(const RunPlan& plan, const Selection& selection);

}  // namespace dsv4::oracle
