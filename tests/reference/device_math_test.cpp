/// Flushed operations of kernel models at the border of the subnormals, by hand: what counts is the result
/// rounded to 24 bits without a bound of the exponent, not the result rounded to the step of subnormals.
#include "reference/kernels/device_math.hpp"

#include <array>
#include <limits>

#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::kernels;
using arith::from_bits;
using arith::to_bits;

namespace {

constexpr float kLeastNormal = 0x1p-126F;
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("a product just below the least normal number is zero although IEEE rounds it up") {
  // 12913 * 5197 = 2^26 - 3, so the product is 2^-126 - 1.5 * 2^-151. Of 24 bits its neighbours are 2^-126
  // and 2^-126 - 2^-150, and the latter is nearer; subnormals have steps of 2^-149, of which 2^-126 is
  // nearest.
  const float a = 12913.0F * 0x1p-70F;
  const float b = 5197.0F * 0x1p-82F;
  REQUIRE(a * b == kLeastNormal);
  REQUIRE(to_bits(ftz(a * b)) == to_bits(kLeastNormal));
  REQUIRE(to_bits(ftz_mul(a, b)) == 0U);
  REQUIRE(to_bits(ftz_mul(a, -b)) == 0x80000000U);
  // 18631 * 1801 = 2^25 - 1: 2^-126 - 2^-151 is a tie of 24 bits and goes to the even 2^-126.
  REQUIRE(ftz_mul(18631.0F * 0x1p-70F, 1801.0F * 0x1p-81F) == kLeastNormal);
}

TEST_CASE("fma the same: 2^-126 - 0.75 * 2^-150") {
  REQUIRE(arith::fma(-0x1p-76F, 0x1.8p-75F, kLeastNormal) == kLeastNormal);
  REQUIRE(to_bits(ftz_fma(-0x1p-76F, 0x1.8p-75F, kLeastNormal)) == 0U);
  REQUIRE(to_bits(ftz_fma(0x1p-76F, 0x1.8p-75F, -kLeastNormal)) == 0x80000000U);
  // A quarter of the step below goes back to 2^-126.
  REQUIRE(ftz_fma(-0x1p-76F, 0x1p-76F, kLeastNormal) == kLeastNormal);
}

TEST_CASE("sums, differences, subnormal operands, NaN") {
  REQUIRE(to_bits(ftz_sub(0x1.8p-126F, kLeastNormal)) == 0U);
  REQUIRE(to_bits(ftz_sub(kLeastNormal, 0x1.8p-126F)) == 0x80000000U);
  REQUIRE(ftz_add(from_bits(0x007FFFFFU), kLeastNormal) == kLeastNormal);
  REQUIRE(to_bits(ftz_sub(0.0F, 0.0F)) == 0U);
  REQUIRE(ftz_sub(3.0F, from_bits(0x007FFFFFU)) == 3.0F);
  REQUIRE(to_bits(stored(ftz_sub(kInf, kInf))) == kDeviceNan);
  REQUIRE(to_bits(stored(ftz_mul(from_bits(1U), kInf))) == kDeviceNan);  // zero times infinity
  REQUIRE(to_bits(stored(ftz_fma(1.0F, from_bits(0xFFC00001U), 0.0F))) == kDeviceNan);
  std::array<float, 4> lanes{1.0F, from_bits(0x7FC00000U), 2.0F, 3.0F};
  REQUIRE(to_bits(stored(ftz_butterfly_sum(lanes, kQuadOffsets))) == kDeviceNan);
}
