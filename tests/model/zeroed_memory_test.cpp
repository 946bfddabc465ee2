#include "model/zeroed_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "support/catch.hpp"

using namespace dsv4;

namespace {

template <class T>
bool all_zero(const ZeroedArray<T>& array) {
  return std::all_of(array.begin(), array.end(), [](T value) { return value == T{}; });
}

}  // namespace

TEST_CASE("arrays start as zeros at a cache line, also in memory that was used before") {
  // Below, at and above the size from which pieces come from the system.
  for (const std::size_t count : {1U, 63U, 64U, 1000U, (2U << 20) - 1, 2U << 20, (4U << 20) + 12345U}) {
    for (int round = 0; round < 3; ++round) {
      ZeroedArray<std::uint8_t> array(count);
      REQUIRE(array.size() == count);
      REQUIRE(reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
      REQUIRE(all_zero(array));
      std::fill(array.begin(), array.end(), std::uint8_t{0xA5});
    }
  }
}

TEST_CASE("an array is copied by value and moved without a copy") {
  for (const std::size_t count : {5U, 1U << 20, (3U << 20) + 7U}) {
    ZeroedArray<float> a(count);
    for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<float>(i);
    ZeroedArray<float> b = a;
    REQUIRE(b.data() != a.data());
    REQUIRE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    b[1] = -1;
    REQUIRE(a[1] == 1);
    const float* const memory = a.data();
    const ZeroedArray<float> c = std::move(a);
    REQUIRE(c.data() == memory);
    REQUIRE(a.size() == 0);
    a = c;
    REQUIRE(a[count - 1] == static_cast<float>(count - 1));
  }
}

TEST_CASE("an empty array, and one that no machine holds") {
  const ZeroedArray<float> empty(0);
  REQUIRE(empty.size() == 0);
  REQUIRE(empty.begin() == empty.end());
  REQUIRE_THROWS_AS(ZeroedArray<float>(static_cast<std::size_t>(-1)), std::bad_array_new_length);
  REQUIRE_THROWS_AS(ZeroedArray<float>(static_cast<std::size_t>(-1) / 8), std::bad_alloc);
}
