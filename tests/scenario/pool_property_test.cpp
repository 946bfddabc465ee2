// Page pools under random use: no page twice, none out of range, counts that add up.
#include <rapidcheck.h>

#include <map>

#include "scenario/page_pool.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

TEST_CASE("pools hand out every page to one holder at a time") {
  const bool holds = rc::check("pool", [] {
    const auto order = static_cast<Allocate>(*rc::gen::inRange(0, 3));
    const auto usable = *rc::gen::inRange<std::int64_t>(1, 12);
    PagePool pool(Pool::window, order, usable, *rc::gen::arbitrary<std::uint64_t>());
    std::map<std::int32_t, int> held;  // page -> holders
    for (const int choice : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000))) {
      if (choice % 3 == 0 || held.empty()) {
        const auto page = pool.take();
        RC_ASSERT(page.has_value() == (static_cast<std::int64_t>(held.size()) < usable));
        if (!page) continue;
        RC_ASSERT(*page >= 1 && *page <= usable);
        RC_ASSERT(!held.contains(*page));
        held[*page] = 1;
      } else {
        auto entry = held.begin();
        std::advance(entry, choice % static_cast<int>(held.size()));
        if (choice % 3 == 1) {
          pool.share(entry->first);
          ++entry->second;
        } else {
          const bool last = --entry->second == 0;
          RC_ASSERT(pool.give(entry->first) == last);
          if (last) held.erase(entry);
        }
      }
      RC_ASSERT(pool.in_use() == static_cast<std::int64_t>(held.size()));
      for (const auto& [page, holders] : held) RC_ASSERT(pool.holders(page) == holders);
      const auto free = pool.free_pages(true);
      RC_ASSERT(static_cast<std::int64_t>(free.size() + held.size()) == usable);
    }
  });
  CHECK(holds);
}

}  // namespace
}  // namespace dsv4::scenario
