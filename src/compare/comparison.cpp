#include "compare/comparison.hpp"

#include <algorithm>

namespace dsv4::compare {

std::string_view name(Verdict verdict) {
  constexpr std::array<std::string_view, kVerdictCount> kNames{"equal",    "value_equal", "ordering_only",
                                                               "tie_swap", "within_rule", "diverged"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view name(Inputs inputs) {
  constexpr std::array<std::string_view, 4> kNames{"identical", "within_rule", "different", "unknown"};
  return kNames[static_cast<std::size_t>(inputs)];
}

bool StepComparison::failed() const {
  return !findings.empty() || std::ranges::any_of(comparisons, [](const Comparison& c) { return c.failed; });
}

void Totals::add(const StepComparison& step) {
  ++steps;
  for (const Comparison& comparison : step.comparisons) {
    ++compared;
    ++verdicts[static_cast<std::size_t>(comparison.verdict)];
    elements += comparison.elements;
    dont_care += comparison.dont_care;
    if (comparison.worst_ratio && !(worst_ratio && *worst_ratio >= *comparison.worst_ratio)) {
      worst_ratio = comparison.worst_ratio;
    }
    if (!comparison.failed) continue;
    ++(comparison.downstream ? downstream : failed);
    if (!first_divergence) first_divergence = comparison;
  }
  for (const Skip& skip : step.skips) ++(skip.kind == Skip::Kind::skipped ? skipped : not_produced);
  findings += static_cast<std::int64_t>(step.findings.size());
}

}  // namespace dsv4::compare
