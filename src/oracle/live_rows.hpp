/// Which live rows of two engines differ after an event: the comparison of state says that digests differ,
/// this names the rows.
#pragma once

#include "compare/comparison.hpp"
#include "model/engine.hpp"

namespace dsv4::oracle {

/// A live row of a cache (docs/numerics.md 12.3).
struct LiveRow {
  std::int32_t request = -1;
  std::int32_t index = -1;  ///< token position, or entry index
  std::int64_t slot = -1;
};
/// In the order of Engine::live_rows.
std::vector<LiveRow> live_row_list(const RunConfig& config, int layer, Cache cache,
                                   std::span<const LiveRequest> live);

/// Completes the comparisons of state digests that are not equal: rows compared and differing, the first
/// one's request, position or entry, slot, page, and its first byte. Both engines have just ended the step of
/// `plan`; engines without byte-exact caches leave the step as it is.
void locate_state_differences(const Engine& reference, const Engine& subject, const StepPlan& plan,
                              compare::StepComparison& step);

}  // namespace dsv4::oracle
