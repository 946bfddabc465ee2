/// How much work each stage of a step is: what `bench` divides by time.
#pragma once

#include <array>

#include "model/step_plan.hpp"

namespace dsv4::cli {

/// Either arithmetic (judged by the FMA peak) or memory traffic (judged by the copy peak) dominates a stage.
struct StageWork {
  double flop = 0;   ///< a fused multiply-add counts 2
  double bytes = 0;  ///< read and written once each; only where flop is 0
};

std::array<StageWork, kStageCount> stage_work(const RunConfig& config, const StepPlan& step, int layer);

}  // namespace dsv4::cli
