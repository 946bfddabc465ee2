// The special-function unit (docs/hopper.md 1, 2): results derived by hand from the tables, specials, and
// MPFR as the judge of how far results may lie from the truth.
#include "arith/hopper/mufu.hpp"

#include <fmt/core.h>
#include <mpfr.h>

#include <cmath>
#include <limits>

#include "arith/philox.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;
namespace hopper = arith::hopper;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNan = 0x7FFFFFFFU;
constexpr std::uint32_t kPlusInf = 0x7F800000U;
constexpr std::uint32_t kMinusInf = 0xFF800000U;
constexpr std::uint32_t kMinusZero = 0x80000000U;

/// Difference of a result from an MPFR function of x, in units of the last place of the true value.
template <class Function>
double units_off(float result, float x, Function function) {
  mpfr_t truth, got;
  mpfr_inits2(120, truth, got, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_flt(truth, x, MPFR_RNDN);
  function(truth);
  mpfr_set_flt(got, result, MPFR_RNDN);
  const long exponent = mpfr_get_exp(truth) - 24;
  mpfr_sub(got, got, truth, MPFR_RNDN);
  const double off = std::ldexp(mpfr_get_d(got, MPFR_RNDN), static_cast<int>(-exponent));
  mpfr_clears(truth, got, static_cast<mpfr_ptr>(nullptr));
  return std::fabs(off);
}

}  // namespace

TEST_CASE("truncated square cuts every partial product") {
  // Bit 16 alone: (2^16 >> 2) >> 1 = 2^13 = x^2 / 2^19.
  CHECK(hopper::truncated_square(0x10000) == 0x2000);
  // Bits 0 and 1: 3 >> 17 is nothing, bit 0 never counts.
  CHECK(hopper::truncated_square(3) == 0);
  // All 17 bits: the sum of 2^(i-1) - 1 over i = 1..16 is 65519, halved 32759; the exact x^2 / 2^19 is 32767.
  CHECK(hopper::truncated_square(0x1FFFF) == 32759);
}

TEST_CASE("ex2 by hand") {
  // |x| 2^23 = 2^23 has no fraction: f = 0 and the integer part is -1. V = 33554432 * 2^13 + 30690,
  // V >> 15 = 2^23: a significand of exactly 1.
  CHECK(hopper::ex2_ftz(-1.0F) == 0.5F);
  CHECK(hopper::ex2_ftz(0.0F) == 1.0F);
  CHECK(hopper::ex2_ftz(-0.0F) == 1.0F);
  CHECK(hopper::ex2_ftz(127.0F) == 0x1p127F);
  // f = 2^22: segment 32, x = 0. 47453132 * 2^13 >> 15 = 47453132 / 4 = 11863283 = 0xB504F3.
  CHECK(to_bits(hopper::ex2_ftz(0.5F)) == 0x3FB504F3U);
  // The complement of f = 2^22 is 2^22 - 1, integer part -1: segment 31, x = 0x1FFFF, q = 32759.
  // V = 46941968 * 8192 + 31775 * 131071 + 691 * 32759 + 30690 = 388736050040, >> 15 = 11863282 = 0xB504F2.
  CHECK(to_bits(hopper::ex2_ftz(-0.5F)) == 0x3F3504F2U);
  // Nothing is left of an argument below 2^-23, of either sign.
  CHECK(hopper::ex2_ftz(0x1.fffffep-24F) == 1.0F);
  CHECK(hopper::ex2_ftz(-0x1.fffffep-24F) == 1.0F);
  CHECK(hopper::ex2_ftz(from_bits(0x80000001U)) == 1.0F);
}

TEST_CASE("ex2 at the ends") {
  CHECK(to_bits(hopper::ex2_ftz(128.0F)) == kPlusInf);
  CHECK(to_bits(hopper::ex2_ftz(kInf)) == kPlusInf);
  CHECK(to_bits(hopper::ex2_ftz(-kInf)) == 0U);
  CHECK(to_bits(hopper::ex2_ftz(from_bits(0xFFC00001U))) == kNan);
  CHECK(hopper::ex2_ftz(-126.0F) == 0x1p-126F);
  CHECK(to_bits(hopper::ex2_ftz(std::nextafterf(-126.0F, -kInf))) == 0U);
  // Subnormal results kept: half the argument, squared. 2^-130 = (2^-65)^2 and 2^-149 = (2^-74.5)^2, the root
  // of which is 0xB504F2 units: its square, 0.9999998 * 2^-149, rounds to one unit.
  CHECK(hopper::ex2(-130.0F) == 0x1p-130F);
  CHECK(hopper::ex2(-149.0F) == 0x1p-149F);
  CHECK(to_bits(hopper::ex2(-151.0F)) == 0U);
  CHECK(to_bits(hopper::ex2(-kInf)) == 0U);
  CHECK(to_bits(hopper::ex2(from_bits(0x7F800001U))) == kNan);
  CHECK(hopper::ex2(-126.0F) == 0x1p-126F);
}

TEST_CASE("rcp by hand") {
  // m = 0: V = 67108862 * 2^13 + 18407, V >> 15 = 16777216 = 2^24: 1 exactly.
  CHECK(hopper::rcp_ftz(1.0F) == 1.0F);
  CHECK(hopper::rcp_ftz(-4.0F) == -0.25F);
  // m = 1: x = 1, q(2) = 0: 549755797504 - 65534 + 18407 = 549755750377, >> 15 = 16777214 = 0xFFFFFE.
  CHECK(to_bits(hopper::rcp_ftz(from_bits(0x3F800001U))) == 0x3F7FFFFEU);
  // 1.5: segment 64, x = 0: 44739242 * 8192 + 18407 >> 15 = 11184811 = 0xAAAAAB.
  CHECK(to_bits(hopper::rcp_ftz(1.5F)) == 0x3F2AAAABU);
  // The ends: 2^126 has the smallest normal reciprocal.
  CHECK(hopper::rcp_ftz(0x1p126F) == 0x1p-126F);
  CHECK(to_bits(hopper::rcp_ftz(from_bits(0xFE800001U))) == kMinusZero);
  CHECK(to_bits(hopper::rcp_ftz(-kInf)) == kMinusZero);
  CHECK(to_bits(hopper::rcp_ftz(0.0F)) == kPlusInf);
  CHECK(to_bits(hopper::rcp_ftz(from_bits(0x807FFFFFU))) == kMinusInf);
  CHECK(to_bits(hopper::rcp_ftz(from_bits(0xFF800001U))) == kNan);
  // Kept: 2^127 times 1/4 is 2^125, its reciprocal times 1/4 the subnormal 2^-127; 2^-127 times 2^24
  // likewise.
  CHECK(hopper::rcp(0x1p127F) == 0x1p-127F);
  CHECK(hopper::rcp(0x1p-127F) == 0x1p127F);
  CHECK(to_bits(hopper::rcp(from_bits(0x80000001U))) == kMinusInf);  // 2^149
  CHECK(to_bits(hopper::rcp(-0.0F)) == kMinusInf);
  CHECK(to_bits(hopper::rcp(kInf)) == 0U);
}

TEST_CASE("rsqrt by hand") {
  CHECK(hopper::rsqrt_ftz(1.0F) == 1.0F);
  CHECK(hopper::rsqrt_ftz(4.0F) == 0.5F);
  CHECK(hopper::rsqrt_ftz(0.25F) == 2.0F);
  CHECK(hopper::rsqrt_ftz(0x1p-126F) == 0x1p63F);
  // 2: j = 2^23, segment 64, x = 0: (47453129 * 16384 + 32767) >> 16 = 11863282 = 0xB504F2, one below the
  // correctly rounded result.
  CHECK(to_bits(hopper::rsqrt_ftz(2.0F)) == 0x3F3504F2U);
  CHECK(to_bits(hopper::rsqrt_ftz(0.5F)) == 0x3FB504F2U);
  CHECK(to_bits(hopper::rsqrt_ftz(0.0F)) == kPlusInf);
  CHECK(to_bits(hopper::rsqrt_ftz(from_bits(0x80000001U))) == kMinusInf);
  CHECK(to_bits(hopper::rsqrt_ftz(-1.0F)) == kNan);
  CHECK(to_bits(hopper::rsqrt_ftz(-kInf)) == kNan);
  CHECK(to_bits(hopper::rsqrt_ftz(kInf)) == 0U);
  // Kept: 2^-130 * 2^24 = 2^-106, its root 2^53 times 2^12.
  CHECK(hopper::rsqrt(0x1p-130F) == 0x1p65F);
  CHECK(to_bits(hopper::rsqrt(-0.0F)) == kMinusInf);
  CHECK(to_bits(hopper::rsqrt(from_bits(0x80000001U))) == kNan);
}

TEST_CASE("lg2 by hand") {
  CHECK(to_bits(hopper::lg2_ftz(1.0F)) == 0U);
  CHECK(hopper::lg2_ftz(2.0F) == 1.0F);
  CHECK(hopper::lg2_ftz(0x1p127F) == 127.0F);
  // m = 0: r = (4 * 4096 + 13125) >> 2 = 7377, of 2^36. 0.5: 7377 - 2^36, inverted 2^36 - 7378, in 36 bits
  // cut to 24: (2^36 - 7378) >> 12 = 2^24 - 2.
  CHECK(to_bits(hopper::lg2_ftz(0.5F)) == 0xBF7FFFFEU);
  // The next float after 1: r = (16384 + 47272 + 13125) >> 2 = 19195 of 2^36: 19195 = 0x4AFB, 15 bits.
  CHECK(hopper::lg2_ftz(from_bits(0x3F800001U)) == 0x4AFBp-36F);
  CHECK(to_bits(hopper::lg2_ftz(0.0F)) == kMinusInf);
  CHECK(to_bits(hopper::lg2_ftz(from_bits(0x807FFFFFU))) == kMinusInf);
  CHECK(to_bits(hopper::lg2_ftz(-1.0F)) == kNan);
  CHECK(to_bits(hopper::lg2_ftz(kInf)) == kPlusInf);
  CHECK(to_bits(hopper::lg2_ftz(from_bits(0x7FC00000U))) == kNan);
  // Kept: 2^-149 * 2^24 = 2^-125. Its r is 7377 - 125 * 2^36, inverted 125 * 2^36 - 7378: 43 bits cut to 24
  // lose 19: 125 - 2^-17. Less 24: -149 + 2^-17, which the float below -128 has no bits for but one: step
  // 2^-16; the tie goes to the even -149.
  CHECK(to_bits(hopper::lg2(0x1p-149F)) == to_bits(-149.0F));
  CHECK(to_bits(hopper::lg2(-0.0F)) == kMinusInf);
  CHECK(to_bits(hopper::lg2(from_bits(0x80000001U))) == kNan);
}

TEST_CASE("results lie near the truth") {
  double worst[4] = {};
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const auto w = arith::philox4x32_10({i, 0, 0, 0}, {11, 5});
    const float any = from_bits((w[0] & 0x7FFFFFU) | (1U + w[1] % 252U) << 23);
    const float small = from_bits((w[2] & 0x807FFFFFU) | (117U + w[3] % 17U) << 23);
    const float power = hopper::ex2_ftz(small);
    if (std::isfinite(power) && power > 0.0F)
      worst[0] = std::fmax(worst[0], units_off(power, small, [](mpfr_ptr v) { mpfr_exp2(v, v, MPFR_RNDN); }));
    worst[1] = std::fmax(
        worst[1], units_off(hopper::rcp_ftz(any), any, [](mpfr_ptr v) { mpfr_ui_div(v, 1, v, MPFR_RNDN); }));
    worst[2] = std::fmax(
        worst[2], units_off(hopper::rsqrt_ftz(any), any, [](mpfr_ptr v) { mpfr_rec_sqrt(v, v, MPFR_RNDN); }));
    // Near 1 the error is absolute: 2^-22 as the vendor documents.
    const float between = from_bits(0x3F000000U + w[3] % 0x1000000U);
    worst[3] =
        std::fmax(worst[3], std::fabs(hopper::lg2_ftz(between) - std::log2(static_cast<double>(between))));
  }
  INFO(fmt::format("ex2 {} ulp, rcp {} ulp, rsqrt {} ulp, lg2 {}", worst[0], worst[1], worst[2], worst[3]));
  CHECK(worst[0] < 2.0);
  CHECK(worst[1] < 1.0);
  CHECK(worst[2] < 1.5);
  CHECK(worst[3] < 0x1p-22);
}
