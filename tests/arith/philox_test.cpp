// Philox4x32-10 (docs/numerics.md section 19) against its published known answers and Random123.
#include "arith/philox.hpp"

#include <Random123/philox.h>

#include "support/catch.hpp"

using dsv4::arith::philox4x32_10;
using Words = std::array<std::uint32_t, 4>;

TEST_CASE("Known answers of Random123") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == Words{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U});
  CHECK(philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
        Words{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU});
  CHECK(philox4x32_10({0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}, {0xA4093822U, 0x299F31D0U}) ==
        Words{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U});
}

TEST_CASE("Philox equals Random123 on 200,000 counters and keys") {
  r123::Philox4x32 theirs;
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state >> 32);
  };
  for (int i = 0; i < 200000; ++i) {
    const Words counter{next(), next(), next(), next()};
    const std::array<std::uint32_t, 2> key{next(), next()};
    const auto wanted = theirs({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
    REQUIRE(philox4x32_10(counter, key) == Words{wanted[0], wanted[1], wanted[2], wanted[3]});
  }
}
