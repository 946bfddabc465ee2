/// What a dump that `replay` compares with had to hold, and what only it holds.
#include <fmt/format.h>

#include "cli/replay_run.hpp"

namespace dsv4::cli {

/// The dump had to hold what it states, if an engine of the same kind runs here; what runs here has to publish
/// all that the dump holds.
compare::Due ReplayRun::make_due() const {
  if (!reference_file_) return {};
  const std::optional<oracle::Selection> asked = oracle::stated_selection(*reference_file_);
  const bool judged = asked && reference_file_->info().complete &&
                      oracle::same_kind(reference_file_->info(), subject_->source->info());
  return [=](bool reference, std::int64_t step, std::optional<TensorId> id) {
    if (!judged) return false;
    return !reference || (asked->has_step(step) && (!id || asked->has_tensor(*id)));
  };
}

/// Steps that only the dump holds, behind the last step of the run.
void ReplayRun::report_later_steps() {
  const auto end = static_cast<std::int64_t>(subject_->plan.steps.size());
  for (const std::int64_t step : reference_file_->steps()) {
    if (step < end || !selection_.has_step(step) || !due_(false, step, std::nullopt)) continue;
    compare::StepComparison comparison;
    comparison.step = step;
    comparator_->add_findings(comparison, {compare::missing(false, step, -1, fmt::format("step {}", step))});
    reporter_.step({step, "", 0, 0}, comparison);
    return;  // the first says it
  }
}

}  // namespace dsv4::cli
