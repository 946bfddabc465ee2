/// Half precision against the format's definition: every code, and every boundary between two neighbours.
#include "arith/f16.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using namespace dsv4::arith;

namespace {

/// Value of a finite magnitude code: 5 exponent bits with bias 15, 10 mantissa bits.
double magnitude(std::uint16_t code) {
  const int exponent = code >> 10;
  const int mantissa = code & 0x3FF;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace

TEST_CASE("f16 codes are the numbers of the format") {
  for (std::uint32_t code = 0; code < 0x7C00; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    REQUIRE(static_cast<double>(f16_to_f32(bits)) == magnitude(bits));
    REQUIRE(f16_to_f32(static_cast<std::uint16_t>(bits | 0x8000U)) == -f16_to_f32(bits));
    REQUIRE(f32_to_f16(f16_to_f32(bits)) == bits);
    REQUIRE(f32_to_f16(-f16_to_f32(bits)) == (bits | 0x8000U));
  }
  REQUIRE(std::isinf(f16_to_f32(0x7C00)));
  REQUIRE(f16_to_f32(0xFC00) < 0);
  REQUIRE(to_bits(f16_to_f32(0x7C01)) == 0x7FC00000U);
  REQUIRE(to_bits(f16_to_f32(0x8000)) == 0x80000000U);
}

TEST_CASE("f16 rounds to nearest, ties to even, and overflows to infinity") {
  for (std::uint32_t code = 0; code + 1 < 0x7C00; ++code) {
    const double low = magnitude(static_cast<std::uint16_t>(code));
    const double high = magnitude(static_cast<std::uint16_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one bit more than f16 has
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    REQUIRE(f32_to_f16(middle) == even);
    REQUIRE(f32_to_f16(std::nextafter(middle, 0.0F)) == code);
    REQUIRE(f32_to_f16(std::nextafter(middle, 1e9F)) == code + 1);
    REQUIRE(f32_to_f16(-std::nextafter(middle, 1e9F)) == (code + 1) + 0x8000U);
  }
  REQUIRE(f32_to_f16(65519.996F) == 0x7BFF);
  REQUIRE(f32_to_f16(65520.0F) == 0x7C00);
  REQUIRE(f32_to_f16(-3e38F) == 0xFC00);
  REQUIRE(f32_to_f16(1e-40F) == 0);
  REQUIRE(f32_to_f16(std::numeric_limits<float>::quiet_NaN()) == 0x7E00);
}
