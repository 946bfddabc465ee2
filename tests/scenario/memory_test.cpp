// Orders of the page pools and state bases, by hand.
#include "scenario/page_pool.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

using Pages = std::vector<std::int32_t>;

TEST_CASE("sequential does not re-use a page before the pool is used up") {
  PagePool pool(Pool::window, Allocate::sequential, 4, 0);
  CHECK(pool.take() == 1);
  CHECK(pool.take() == 2);
  CHECK(pool.take() == 3);
  CHECK(pool.give(2));
  CHECK(pool.give(1));
  CHECK(pool.take() == 4);
  CHECK(pool.take() == 2);  // the one freed longest ago
  CHECK(pool.take() == 1);
  CHECK_FALSE(pool.take().has_value());
  CHECK(pool.peak() == 4);
}

TEST_CASE("lifo hands out what was freed last") {
  PagePool pool(Pool::window, Allocate::lifo, 4, 0);
  CHECK(pool.take() == 1);
  CHECK(pool.take() == 2);
  CHECK(pool.give(1));
  CHECK(pool.give(2));
  CHECK(pool.take() == 2);
  CHECK(pool.take() == 1);
  CHECK(pool.take() == 3);
}

TEST_CASE("shuffled draws from the stream of the pool") {
  constexpr std::uint64_t kSeed = 77;
  const SeededStream words(kSeed, "allocate/index", 0);
  PagePool pool(Pool::index, Allocate::shuffled, 5, kSeed);
  Pages free{1, 2, 3, 4, 5};  // the drawn place takes the last free page
  for (std::uint32_t draw = 0; draw < 4; ++draw) {
    const std::size_t place = words.word(draw) % free.size();
    CHECK(pool.take() == free[place]);
    free[place] = free.back();
    free.pop_back();
  }
}

TEST_CASE("holders are counted") {
  PagePool pool(Pool::index, Allocate::lifo, 2, 0);
  const std::int32_t page = *pool.take();
  pool.share(page);
  CHECK(pool.holders(page) == 2);
  CHECK_FALSE(pool.give(page));
  CHECK(pool.in_use() == 1);
  CHECK(pool.give(page));
  CHECK(pool.in_use() == 0);
  CHECK_THROWS_AS(pool.give(page), InternalError);
  CHECK_THROWS_AS(pool.share(page), InternalError);
  CHECK_THROWS_AS(pool.give(0), InternalError);
}

TEST_CASE("free pages with and without fresh ones") {
  PagePool pool(Pool::index, Allocate::sequential, 4, 0);
  pool.take();
  pool.take();
  pool.give(1);
  CHECK(pool.free_pages(false) == Pages{1});
  CHECK(pool.free_pages(true) == Pages{1, 3, 4});
}

TEST_CASE("the lowest free state base") {
  StateBases bases;
  CHECK(bases.take() == 0);
  CHECK(bases.take() == 1);
  CHECK(bases.take() == 2);
  bases.give(1);
  bases.give(0);
  CHECK(bases.free_bases(5, false) == Pages{0, 1});
  CHECK(bases.free_bases(5, true) == Pages{0, 1, 3, 4});
  CHECK(bases.take() == 0);
  CHECK(bases.take() == 1);
  CHECK(bases.take() == 3);
  CHECK(bases.peak() == 4);
  CHECK_THROWS_AS(bases.give(7), InternalError);
}

}  // namespace
}  // namespace dsv4::scenario
