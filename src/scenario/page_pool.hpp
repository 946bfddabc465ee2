/// One page pool of a run: which page is handed out next, who shares it, what was freed.
///
/// Page 0 is the null page and never leaves. Orders: sequential hands out pages 1, 2, ... until the pool is
/// used up, then the page freed longest ago; lifo the page freed last, else the lowest fresh one; shuffled
/// the k-th of F free pages with k = word n of the stream `allocate/<pool>` mod F, n counting the pages
/// handed out. A pool of a fixed size may start at another page than 1; its fresh pages are then first, ..., N, 1, ...
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/seeded.hpp"
#include "model/step_plan.hpp"

namespace dsv4::scenario {

class PagePool {
 public:
  /// `usable` pages beside the null page; empty: as many as are asked for (to find the size of an `auto`
  /// pool).
  PagePool(Pool pool, Allocate order, std::optional<std::int64_t> usable, std::uint64_t seed,
           std::int32_t first = 1);

  /// A page with one holder, or nothing when the pool is empty.
  std::optional<std::int32_t> take();
  /// One more holder of a page in use.
  void share(std::int32_t page);
  /// One holder less; true when nobody holds the page any longer.
  bool give(std::int32_t page);

  std::int32_t holders(std::int32_t page) const;
  std::int64_t in_use() const { return in_use_; }
  /// The most pages that were in use at once.
  std::int64_t peak() const { return peak_; }
  std::optional<std::int64_t> usable() const { return usable_; }
  /// Pages that nobody holds, ascending; `fresh` adds those that were never handed out.
  std::vector<std::int32_t> free_pages(bool fresh) const;

 private:
  std::int32_t take_free();
  std::int32_t take_shuffled();
  std::int32_t shuffled_at(std::int64_t place) const;

  Allocate order_;
  std::optional<std::int64_t> usable_;
  SeededStream draws_;
  std::uint32_t drawn_ = 0;
  std::int32_t first_ = 1;
  std::int64_t fresh_taken_ = 0;    ///< sequential and lifo: fresh pages handed out
  std::deque<std::int32_t> freed_;  ///< sequential and lifo: in the order of freeing
  std::int64_t shuffled_free_ = 0;  ///< shuffled: free pages are the places 0 .. shuffled_free_ - 1
  std::unordered_map<std::int64_t, std::int32_t> shuffled_;  ///< places that do not hold page place + 1
  std::vector<std::int32_t> holders_{0};                     ///< by page, as far as pages were handed out
  std::vector<bool> touched_{false};
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
};

/// Numbers for the rings and accumulators of requests: the lowest free one.
class StateBases {
 public:
  std::int32_t take();
  void give(std::int32_t base);
  std::int32_t peak() const { return static_cast<std::int32_t>(taken_.size()); }
  /// Free numbers below `limit`, ascending; `fresh` adds those that were never taken.
  std::vector<std::int32_t> free_bases(std::int32_t limit, bool fresh) const;

 private:
  std::vector<bool> taken_;
};

}  // namespace dsv4::scenario
