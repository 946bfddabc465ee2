/// Pools and state bases of a run, and the block tables through which requests hold them.
///
/// Everything handed out, copied or given back is noted in the plan of the step at hand.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "model/step_plan.hpp"
#include "scenario/page_pool.hpp"
#include "scenario/request_state.hpp"

namespace dsv4::scenario {

/// No page left; the planner turns it into a UsageError with a place.
struct PoolEmpty : std::runtime_error {
  PoolEmpty(Pool which, std::string who, std::int64_t pages)
      : std::runtime_error("pool empty"), pool(which), request(std::move(who)), usable(pages) {}
  Pool pool;
  std::string request;
  std::int64_t usable;
};

/// Rows or entries of a page.
int page_rows(const CacheConfig& cache, Pool pool);

class Memory {
 public:
  /// Without `usable` pools grow as needed. Pools that no layer of the run uses stay empty.
  Memory(const RunConfig& config, bool limited);

  bool uses(Pool pool) const { return used_[static_cast<std::size_t>(pool)]; }
  PagePool& pool(Pool pool) { return pools_[static_cast<std::size_t>(pool)]; }
  const PagePool& pool(Pool pool) const { return pools_[static_cast<std::size_t>(pool)]; }
  StateBases& bases() { return bases_; }
  const StateBases& bases() const { return bases_; }

  /// Makes the pages of rows (entries) [first, end) writable: takes those that are not held, and replaces a
  /// shared one by a copy of its rows below `first`.
  void cover(RequestState& request, Pool pool, std::int32_t first, std::int32_t end, StepPlan& step);
  /// All pages that a step writes which leaves `request` at `end` rows of which `committed` stay. `from`
  /// leaves out what a restore keeps; `begin` is the first row of the step; `all_state`: every row writes
  /// state (verify).
  void cover_step(RequestState& request, std::int32_t begin, std::int32_t end, std::int32_t committed,
                  const KeepFrom& from, bool all_state, StepPlan& step);
  /// Gives back every page that holds nothing live or committed at the request's length.
  void settle(RequestState& request, StepPlan& step);
  /// Gives back all pages of one pool.
  void drop(RequestState& request, Pool pool, StepPlan& step);
  /// Gives back everything but compressed and index pages.
  void drop_but_entries(RequestState& request, StepPlan& step);
  /// Gives back all pages and the base.
  void drop_all(RequestState& request, StepPlan& step);
  /// Lets `request` share the fully covered pages of `donor` and copies the partly covered one.
  void share_prefix(RequestState& request, const RequestState& donor, Pool pool, std::int32_t entries,
                    StepPlan& step);

  /// The first and one past the last position of state rows that are kept at a length.
  std::pair<std::int32_t, std::int32_t> state_span(LayerKind kind, std::int32_t length) const;

 private:
  std::int32_t take(Pool pool, const RequestState& request, StepPlan& step);
  void give(RequestState& request, Pool pool, std::size_t item, StepPlan& step);
  void keep_only(RequestState& request, Pool pool, std::int32_t first, std::int32_t end, StepPlan& step);

  const RunConfig& config_;
  std::vector<PagePool> pools_;
  std::array<bool, kPoolCount> used_{};
  StateBases bases_;
};

}  // namespace dsv4::scenario
