// One tensor-core step (docs/hopper.md 4): cases by hand that separate each rule from its neighbours.
#include "arith/hopper/dot.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::to_bits;
namespace hopper = arith::hopper;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kNan = 0x7FFFFFFFU;

using Pairs = std::vector<std::pair<float, float>>;

/// c + the products of pairs that bf16 holds exactly; the rest of the step is zeros.
float bf16(float c, const Pairs& pairs, const hopper::DotRule& rule = hopper::kBf16Rule) {
  std::uint16_t a[16] = {};
  std::uint16_t b[16] = {};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    a[i] = arith::f32_to_bf16(pairs[i].first);
    b[i] = arith::f32_to_bf16(pairs[i].second);
  }
  return hopper::dot_accumulate_bf16(a, b, c, rule);
}
float e4m3(float c, const Pairs& pairs) {
  std::uint8_t a[32] = {};
  std::uint8_t b[32] = {};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    a[i] = arith::f32_to_e4m3(pairs[i].first);
    b[i] = arith::f32_to_e4m3(pairs[i].second);
  }
  return hopper::dot_accumulate_e4m3(a, b, c);
}

}  // namespace

TEST_CASE("bf16: small sums are exact") {
  CHECK(bf16(0.5F, {{1, 1}, {2, 3}}) == 7.5F);
  CHECK(bf16(-7.0F, {{1, 1}, {2, 3}}) == 0.0F);
  CHECK(to_bits(bf16(-0.0F, {})) == 0U);
  CHECK(to_bits(bf16(-0.0F, {{-1, 0}})) == 0U);
}

TEST_CASE("bf16: terms keep 25 bits below the largest exponent, cut toward zero") {
  CHECK(bf16(1.0F, {{-1, 1}, {0x1p-12F, 0x1p-13F}}) == 0x1p-25F);
  CHECK(to_bits(bf16(1.0F, {{-1, 1}, {0x1p-13F, 0x1p-13F}})) == 0U);
  CHECK(to_bits(bf16(1.0F, {{-1, 1}, {-0x1p-13F, 0x1p-13F}})) == 0U);  // -2^-26 as well, and no -0
  // 1.5 * 2^-25 on both sides of zero leaves one unit.
  CHECK(bf16(1.0F, {{-1, 1}, {1.5F, 0x1p-25F}}) == 0x1p-25F);
  CHECK(bf16(1.0F, {{-1, 1}, {-1.5F, 0x1p-25F}}) == -0x1p-25F);
  // Sixteen halves of a unit are eight units when summed first; here they are nothing.
  CHECK(bf16(1.0F, Pairs(16, {0x1p-13F, 0x1p-13F})) == 1.0F);
}

TEST_CASE("bf16: the exponent of a product is the sum of its factors' exponents") {
  // 1.5 * 1.5 = 2.25 counts as exponent 0, so 2^-25 survives beside it and its negative ...
  CHECK(bf16(0.0F, {{1.5F, 1.5F}, {-1.5F, 1.5F}, {0x1p-12F, 0x1p-13F}}) == 0x1p-25F);
  // ... while an accumulator of -2.25 has exponent 1, and 2^-25 is below its last bit.
  CHECK(to_bits(bf16(-2.25F, {{1.5F, 1.5F}, {0x1p-12F, 0x1p-13F}})) == 0U);
}

TEST_CASE("bf16: the result is cut toward zero to 24 bits") {
  CHECK(bf16(1.0F, {{0x1p-12F, 0x1p-12F}}) == 1.0F);    // 1 + 2^-24
  CHECK(bf16(1.0F, {{0x1.8p-12F, 0x1p-12F}}) == 1.0F);  // 1 + 1.5 * 2^-24, nearest is above
  CHECK(bf16(-1.0F, {{-0x1.8p-12F, 0x1p-12F}}) == -1.0F);
  CHECK(bf16(1.0F, {{-0x1p-12F, 0x1p-13F}}) ==
        std::nextafterf(1.0F, 0.0F));  // 1 - 2^-25: below 1 the step is 2^-24
  // Sixteen 255^2 * 2^-14 and 4 - 2^-22: 67.5009765625 - 2^-22, cut to the step 2^-17 is 8847487 steps.
  CHECK(bf16(0x1.fffffep1F, Pairs(16, {0x1.fep0F, 0x1.fep0F})) == 8847487.0F * 0x1p-17F);
  CHECK(bf16(-0x1.fffffep1F, Pairs(16, {-0x1.fep0F, 0x1.fep0F})) == -8847487.0F * 0x1p-17F);
}

TEST_CASE("bf16: zeros have no exponent") {
  CHECK(bf16(0.0F, {{0.0F, 0x1p100F}, {0x1p-50F, 0x1p-50F}}) == 0x1p-100F);
  CHECK(bf16(0x1p-100F, {{-0.0F, 0x1p127F}}) == 0x1p-100F);
}

TEST_CASE("bf16: the common exponent is at least -133") {
  // A unit is 2^-158 at least: -2^-159 vanishes beside 2^-149; with a floor of -134 the sum would fall below
  // 2^-149 and be cut to zero.
  CHECK(bf16(0.0F, {{0x1p-75F, 0x1p-74F}, {-0x1p-80F, 0x1p-79F}}) == 0x1p-149F);
  CHECK(to_bits(bf16(0.0F, {{0x1p-75F, 0x1p-74F}, {-0x1p-80F, 0x1p-79F}}, {25, 23, -134})) == 0U);
  // -2^-158 is one unit and takes the sum below 2^-149; with a floor of -132 it would vanish.
  CHECK(to_bits(bf16(0.0F, {{0x1p-75F, 0x1p-74F}, {-0x1p-79F, 0x1p-79F}})) == 0U);
  CHECK(bf16(0.0F, {{0x1p-75F, 0x1p-74F}, {-0x1p-79F, 0x1p-79F}}, {25, 23, -132}) == 0x1p-149F);
}

TEST_CASE("bf16: subnormals") {
  // The smallest bf16, 2^-133, is significand 1 of exponent -126.
  CHECK(bf16(0.0F, {{0x1p-133F, 1.0F}}) == 0x1p-133F);
  CHECK(bf16(0x1p-149F, {{0x1p-133F, 1.0F}}) == 0x1.0001p-133F);
  CHECK(to_bits(bf16(0.0F, {{0x1p-133F, 0x1p-20F}})) == 0U);
  CHECK(bf16(-0x1p-149F, {}) == -0x1p-149F);
  // Its exponent counts as -126 + 110, not as -133 + 110: a unit is 2^-41, so 2^-42 vanishes.
  CHECK(to_bits(bf16(0.0F, {{0x1p-133F, 0x1p110F}, {-0x1p-133F, 0x1p110F}, {0x1p-21F, 0x1p-21F}})) == 0U);
  CHECK(bf16(0.0F, {{0x1p-133F, 0x1p110F}, {-0x1p-133F, 0x1p110F}, {0x1p-21F, 0x1p-20F}}) == 0x1p-41F);
}

TEST_CASE("bf16: specials") {
  CHECK(to_bits(bf16(0.0F, {{kInf, 0.0F}})) == kNan);
  CHECK(to_bits(bf16(0.0F, {{kInf, 1.0F}, {-kInf, 1.0F}})) == kNan);
  CHECK(to_bits(bf16(-kInf, {{kInf, 1.0F}})) == kNan);
  CHECK(to_bits(bf16(0.0F, {{kQuietNan, 0.0F}})) == kNan);
  CHECK(to_bits(bf16(kQuietNan, {{kInf, 1.0F}})) == kNan);
  CHECK(bf16(0.0F, {{kInf, -1.0F}}) == -kInf);
  CHECK(bf16(kInf, {{0x1p127F, -0x1p127F}}) == kInf);
  CHECK(bf16(0.0F, {{0x1p127F, 1.0F}, {0x1p127F, 1.0F}}) == kInf);
  CHECK(bf16(0.0F, {{0x1p127F, -2.0F}}) == -kInf);
  // Overflow is judged on the sum alone: 2^128 - 2^127 is a number.
  CHECK(bf16(0.0F, {{0x1p127F, 2.0F}, {-0x1p127F, 1.0F}}) == 0x1p127F);
  // The largest float and half a unit more is cut back.
  CHECK(bf16(0x1.fffffep127F, {{0x1p103F, 1.0F}}) == 0x1.fffffep127F);
}

TEST_CASE("e4m3: terms and result keep 13 bits") {
  CHECK(e4m3(0.5F, {{1, 1}, {2, 3}}) == 7.5F);
  CHECK(e4m3(0x1.000002p0F, {}) == 1.0F);  // the accumulator is a term too
  CHECK(e4m3(1.0F, {{-1, 1}, {0x1p-6F, 0x1p-7F}}) == 0x1p-13F);
  CHECK(to_bits(e4m3(1.0F, {{-1, 1}, {0x1p-7F, 0x1p-7F}})) == 0U);
  // 448 * 448 = 200704 has exponent 16: a unit is 8. The result has exponent 17 and keeps steps of 16.
  CHECK(e4m3(0.0F, {{448, 448}, {8, 1}}) == 200704.0F);
  CHECK(e4m3(0.0F, {{448, 448}, {8, 1}, {8, 1}}) == 200720.0F);
  CHECK(e4m3(0.0F, {{448, 448}, {4, 1}, {4, 1}, {4, 1}, {4, 1}}) == 200704.0F);
  // The smallest, 2^-9, is significand 1/8 of exponent -6: -6 + 0 is the common exponent and a unit 2^-19.
  CHECK(to_bits(e4m3(0x1p-20F, {{0x1p-9F, 1}, {-0x1p-9F, 1}})) == 0U);
  CHECK(e4m3(0x1p-19F, {{0x1p-9F, 1}, {-0x1p-9F, 1}}) == 0x1p-19F);
  CHECK(to_bits(e4m3(0.0F, {{kQuietNan, 0}})) == kNan);
  CHECK(e4m3(kInf, {{448, -448}}) == kInf);
  CHECK(to_bits(e4m3(0x1p-149F, {})) == 0U);  // the quantum of the result is at least 2^-139
  CHECK(e4m3(0x1.8p-138F, {}) == 0x1.8p-138F);
}

TEST_CASE("e4m3 by mma.sync: fp16 steps of interleaved k, the accumulator added in one rounding") {
  std::uint8_t a[32] = {};
  std::uint8_t b[32] = {};
  a[0] = arith::f32_to_e4m3(1.0F);
  b[0] = arith::f32_to_e4m3(1.0F);
  // 1 + 1.5 * 2^-24 rounds up where a step would cut.
  CHECK(hopper::mma_e4m3(a, b, 0x1.8p-24F) == std::nextafterf(1.0F, 2.0F));
  // k 0 and 16 share the first step and cancel there; k 2, in the second, survives as 2^-18. k 1 is in the
  // first: beside 2^16 a unit is 2^-9, and it vanishes.
  a[0] = a[16] = arith::f32_to_e4m3(256.0F);
  b[0] = arith::f32_to_e4m3(256.0F);
  b[16] = arith::f32_to_e4m3(-256.0F);
  a[2] = b[2] = arith::f32_to_e4m3(0x1p-9F);
  CHECK(hopper::mma_e4m3(a, b, 0.0F) == 0x1p-18F);
  std::swap(a[2], a[1]);
  std::swap(b[2], b[1]);
  CHECK(to_bits(hopper::mma_e4m3(a, b, 0.0F)) == 0U);
}
