// Flushed operations and divisions (docs/hopper.md 2, 3), by hand.
#include "arith/hopper/flushing.hpp"

#include <limits>

#include "arith/hopper/divide.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;
namespace hopper = arith::hopper;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNan = 0x7FFFFFFFU;
constexpr float kTiniest = 0x1p-126F;

}  // namespace

TEST_CASE("a product is flushed by what it rounds to without a bound of the exponent") {
  // 2^25 - 1 = 18631 * 1801: the product is 2^-126 - 2^-151, half way between the 24-bit neighbours 2^-126 -
  // 2^-150 and 2^-126, and goes to the even one.
  CHECK(hopper::mul_ftz(18631.0F * 0x1p-70F, 1801.0F * 0x1p-81F) == kTiniest);
  // 2^26 - 3 = 12913 * 5197: 2^-126 - 1.5 * 2^-151 rounds to 2^-126 - 2^-150, too small. A rounding to the
  // subnormal step 2^-149 would have given 2^-126.
  const float a = 12913.0F * 0x1p-70F;
  const float b = 5197.0F * 0x1p-82F;
  CHECK(a * b == kTiniest);
  CHECK(to_bits(hopper::mul_ftz(a, b)) == 0U);
  CHECK(to_bits(hopper::mul_ftz(-a, b)) == 0x80000000U);
  // 2^-126 - 2^-150 = (2^24 - 1) 2^-150 itself.
  CHECK(to_bits(hopper::mul_ftz(0x1.fffffep0F, 0x1p-127F * 1.0F)) == 0U);  // the factor is subnormal
  CHECK(to_bits(hopper::mul_ftz(0x1.fffffep-60F, 0x1p-67F)) == 0U);
  CHECK(to_bits(hopper::mul_ftz(from_bits(0x807FFFFFU), 0x1p100F)) == 0x80000000U);
  CHECK(to_bits(hopper::mul_ftz(from_bits(1U), kInf)) == kNan);  // zero times infinity
}

TEST_CASE("a flushed fma sees the exact sum") {
  // 2^-126 - 2^-152: a quarter of the 24-bit step below 2^-126, rounds back to it.
  CHECK(hopper::fma_ftz(-0x1p-76F, 0x1p-76F, kTiniest) == kTiniest);
  // 2^-126 - 2^-151: the tie, even.
  CHECK(hopper::fma_ftz(-0x1p-76F, 0x1p-75F, kTiniest) == kTiniest);
  // A little beside the tie, further down than the 53 bits of a double reach: 8384513 * 8392705 = 2^46 + 1,
  // so the sum is 2^-126 - 2^-151 - 2^-197; (1 + 2^-23)(1 - 2^-23) = 1 - 2^-46, so it is 2^-126 - 2^-151 +
  // 2^-197.
  CHECK(to_bits(hopper::fma_ftz(-8384513.0F * 0x1p-99F, 8392705.0F * 0x1p-98F, kTiniest)) == 0U);
  CHECK(to_bits(hopper::fma_ftz(8384513.0F * 0x1p-99F, 8392705.0F * 0x1p-98F, -kTiniest)) == 0x80000000U);
  CHECK(hopper::fma_ftz(-0x1.000002p-76F, 0x1.fffffcp-76F, kTiniest) == kTiniest);
  CHECK(to_bits(hopper::fma_ftz(0x1p-80F, 0x1p-80F, from_bits(0x00400000U))) == 0U);
  CHECK(hopper::fma_ftz(2.0F, 3.0F, 4.0F) == 10.0F);
  CHECK(to_bits(hopper::fma_ftz(kInf, 1.0F, -kInf)) == kNan);
}

TEST_CASE("a flushed sum") {
  CHECK(to_bits(hopper::add_ftz(0x1.8p-126F, -0x1p-126F)) == 0U);  // 2^-127
  CHECK(to_bits(hopper::add_ftz(-0x1.8p-126F, 0x1p-126F)) == 0x80000000U);
  CHECK(hopper::add_ftz(from_bits(0x007FFFFFU), 0x1p-126F) == kTiniest);
}

TEST_CASE("divisions are rn(a * rcp(b))") {
  // rcp(1.5) = 0xAAAAAB * 2^-24; times 3 = 0x2000001 * 2^-24: 26 bits, the nearest 24-bit number is 2.
  CHECK(hopper::div_full(3.0F, 1.5F) == 2.0F);
  // rcp(2^-1 * (1 + 2^-23)) is 0xFFFFFE * 2^-23, so a number over itself is not 1: (2^23 + 1)(2^24 - 2) =
  // 2^47 - 2, 24 bits of which are 0xFFFFFF.F8: rounded up, 1.
  CHECK(hopper::div_full(from_bits(0x3F000001U), from_bits(0x3F000001U)) == 1.0F);
  // Beyond 2^126 the reciprocal would be flushed: both are scaled in the full form, not in the approximate
  // one.
  CHECK(hopper::div_full(0x1p127F, 0x1p127F) == 1.0F);
  CHECK(hopper::div_full_ftz(0x1p127F, 0x1p127F) == 1.0F);
  CHECK(to_bits(hopper::div_approx(0x1p127F, 0x1p127F)) == 0U);
  CHECK(to_bits(hopper::div_approx_ftz(0x1p127F, -0x1p127F)) == 0x80000000U);
  // A subnormal divisor is scaled where subnormals are kept, and is zero elsewhere.
  CHECK(hopper::div_full(0x1p-130F, 0x1p-131F) == 2.0F);
  CHECK(hopper::div_approx(0x1p-130F, 0x1p-131F) == 2.0F);
  CHECK(to_bits(hopper::div_full_ftz(1.0F, 0x1p-131F)) == to_bits(kInf));
  CHECK(to_bits(hopper::div_approx_ftz(0x1p-130F, 0x1p-131F)) == kNan);  // 0 * inf
  // IEEE would divide inf by inf to NaN as well, but 1 by 0 to inf, and 0 by 0 to NaN.
  CHECK(to_bits(hopper::div_full(kInf, kInf)) == kNan);
  CHECK(to_bits(hopper::div_full(1.0F, -0.0F)) == 0xFF800000U);
  CHECK(to_bits(hopper::div_full(0.0F, 0.0F)) == kNan);
  CHECK(to_bits(hopper::div_full(-1.0F, kInf)) == 0x80000000U);
  // Seen on the device: the product lies 1.138 * 2^-151 below 2^-126.
  CHECK(to_bits(hopper::div_approx_ftz(from_bits(0x195385C2U), from_bits(0x585385C3U))) == 0U);
  CHECK(to_bits(hopper::div_approx_ftz(from_bits(0x8B506065U), from_bits(0xCA506065U))) == 0x00800000U);
}
