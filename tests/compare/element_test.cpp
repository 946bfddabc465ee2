#include "compare/element.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

std::uint64_t bits32(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

}  // namespace

TEST_CASE("steps between elements are counted in their own format") {
  REQUIRE(ulp_distance(DType::float32, bits32(1.0F), 0x3F800003) == 3);
  REQUIRE(ulp_distance(DType::float32, 0x80000000, 0x00000000) == 0);
  REQUIRE(ulp_distance(DType::float32, 0x80000001, 0x00000001) == 2);
  REQUIRE(ulp_distance(DType::bfloat16, 0x3F80, 0x3F7F) == 1);
  REQUIRE(ulp_distance(DType::float8_e4m3fn, 0x7E, 0xFE) == 2 * 0x7E);
  REQUIRE(ulp_distance(DType::float4_e2m1fn, 0x3, 0x5) == 2);
  REQUIRE(ulp_distance(DType::float8_e8m0fnu, 127, 125) == 2);
  REQUIRE(ulp_distance(DType::int32, 5, static_cast<std::uint32_t>(-1)) == 6);
  REQUIRE(ulp_distance(DType::float32, 0x7FC00000, 0xFFFFFFFF) == 0);  // NaN has no payload
  REQUIRE(ulp_distance(DType::float32, 0x7FC00000, bits32(1)) == kFar);
  REQUIRE(ulp_distance(DType::float8_e4m3fn, 0x7F, 0x7E) == kFar);
}

TEST_CASE("the interval that rounds to an element ends halfway to its neighbours") {
  // e4m3 around 16: 15 below, 18 above.
  RoundingInterval interval = rounding_interval(DType::float8_e4m3fn, 0x58, false);
  REQUIRE(decode(DType::float8_e4m3fn, 0x58) == 16);
  REQUIRE(interval.low == 15.5);
  REQUIRE(interval.high == 17);
  interval = rounding_interval(DType::float8_e4m3fn, 0x7E, false);  // 448, saturates
  REQUIRE(interval.low == 432);
  REQUIRE(std::isinf(interval.high));
  interval = rounding_interval(DType::float8_e4m3fn, 0x80, false);  // -0
  REQUIRE(interval.low == -0x1p-10);
  REQUIRE(interval.high == 0x1p-10);
  interval = rounding_interval(DType::float4_e2m1fn, 0xB, false);  // -1.5
  REQUIRE(interval.low == -1.75);
  REQUIRE(interval.high == -1.25);
  interval = rounding_interval(DType::bfloat16, 0x3F80, false);  // 1
  REQUIRE(interval.low == 1 - 0x1p-9);
  REQUIRE(interval.high == 1 + 0x1p-8);
  interval = rounding_interval(DType::float32, 0x00000001, false);
  REQUIRE(interval.low == 0x1p-150);
  REQUIRE(interval.high == 0x1.8p-149);
  interval = rounding_interval(DType::float8_e8m0fnu, 128, true);  // scales round up
  REQUIRE(interval.low == 1);
  REQUIRE(interval.high == 2);
}

TEST_CASE("steps, saturation and spelling") {
  REQUIRE(step_at(DType::float8_e4m3fn, 16) == 2);
  REQUIRE(step_at(DType::float8_e4m3fn, 0.001) == 0x1p-9);
  REQUIRE(step_at(DType::bfloat16, -3) == 0x1p-6);
  REQUIRE(step_at(DType::int32, 7) == 1);
  REQUIRE(saturation(DType::float4_e2m1fn) == 6);
  REQUIRE(hex(DType::float32, 0x3EE00000) == "0x3ee00000");
  REQUIRE(hex(DType::float8_e4m3fn, 0x5) == "0x05");
  REQUIRE(hex(DType::float4_e2m1fn, 0x5) == "0x5");
  REQUIRE(hex(DType::bfloat16, 0x7FC0) == "0x7fc0");
  REQUIRE(is_finite(DType::int32, 0xFFFFFFFF));
  REQUIRE_FALSE(is_finite(DType::float8_e8m0fnu, 255));
}

}  // namespace dsv4::compare
