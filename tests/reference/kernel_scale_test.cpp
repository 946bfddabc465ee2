/// The power-of-two scales of kernel models: where libdevice's log2f, rounded up, is the exact exponent.
/// Exact exponents come from comparisons in double, which holds every product with a power of two.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/hopper/divide.hpp"
#include "reference/kernels/block_scale.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::kernels;

namespace {

/// Smallest e with x <= largest * 2^e.
int exact_exponent(double x, double largest) {
  int e = -150;
  while (std::ldexp(largest, e) < x) ++e;
  return e;
}

constexpr std::uint32_t kOne = 0x3F800000U;

/// How many floats directly above 2^k are taken for at most 2^k.
int taken_for_power(int k) {
  int count = 0;
  while (scale_exponent(std::ldexp(arith::from_bits(kOne + 1U + static_cast<std::uint32_t>(count)), k)) ==
         float(k)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("libdevice log2f: special values and powers of two") {
  const float inf = arith::from_bits(0x7F800000U);
  CHECK(libdevice_log2(0.0F) == -inf);
  CHECK(libdevice_log2(-0.0F) == -inf);
  CHECK(libdevice_log2(inf) == inf);
  CHECK(arith::is_nan_bits(arith::to_bits(libdevice_log2(-1.0F))));
  CHECK(arith::is_nan_bits(arith::to_bits(libdevice_log2(arith::from_bits(0x7FC00000U)))));
  for (int k = -149; k <= 127; ++k) CHECK(libdevice_log2(std::ldexp(1.0F, k)) == float(k));
}

// For every normal a: a = m * 2^k with m in [sqrt(1/2), sqrt(2)), and log2f(a) = rn(log2f(m) + k). So its
// round-up follows from all 2^23 values of m and, near m = 1, from all k.
TEST_CASE("libdevice log2f rounded up is exact but within a few ulps above a power of two") {
  constexpr std::uint32_t kFirst = 0x3F3504F3U;  // the least m
  std::int64_t sign_errors = 0;
  std::int64_t too_far = 0;
  std::int64_t inaccurate = 0;
  std::int64_t smallest_beyond_near = 1;
  for (std::uint32_t bits = kFirst; bits < kFirst + 0x800000U; ++bits) {
    const float m = arith::from_bits(bits);
    const float p = libdevice_log2(m);
    sign_errors += (p > 0) != (m > 1.0F) || (p < 0) != (m < 1.0F);
    // |p| < 1/2 + 2^-23: k + p stays strictly between k - 1 and k + 1 for every |k| < 128.
    too_far += std::fabs(p) > 0x1.000004p-1F;
    // From 2^-16 on, p is more than half an ulp of any k: rn(k + p) > k.
    if (m > 1.0F && bits >= kOne + 128U) smallest_beyond_near = smallest_beyond_near && p >= 0x1p-16F;
    if ((bits & 0xFFFU) == 0xABCU) {
      const double exact = std::log2(double(m));
      inaccurate += std::fabs(p - exact) > 0x1p-22 * std::fabs(exact) + 1e-30;
    }
  }
  CHECK(sign_errors == 0);
  CHECK(too_far == 0);
  CHECK(inaccurate == 0);
  CHECK(smallest_beyond_near == 1);

  // Below 2^k: always k. Directly above 2^k: k where k + log2f(m) rounds to k, that is within about half an
  // ulp of k; else k + 1.
  for (int k = -125; k <= 126; ++k) {
    for (std::uint32_t step = 1; step <= 128; ++step) {
      CHECK(scale_exponent(std::ldexp(arith::from_bits(kOne - step), k)) == float(k));
    }
    const int taken = taken_for_power(k);
    for (std::uint32_t step = 1; step <= 128; ++step) {
      const float a = std::ldexp(arith::from_bits(kOne + step), k);
      CHECK(scale_exponent(a) == float(static_cast<int>(step) <= taken ? k : k + 1));
    }
    const int size = k < 0 ? -k - 1 : k;  // k + small lies in the binade of |k|, below it for negative k
    const int expected = size < 4 ? 0 : size < 8 ? 1 : size < 16 ? 2 : size < 32 ? 5 : size < 64 ? 11 : 22;
    CAPTURE(k);
    CHECK(taken == expected);
  }
}

TEST_CASE("scales of blocks of bf16 values are exact, however kernels divide") {
  std::int64_t fp8 = 0;
  std::int64_t fp4 = 0;
  for (std::uint32_t bits = 1; bits < 0x7F80U; ++bits) {
    const float x = arith::bf16_to_f32(static_cast<std::uint16_t>(bits));
    const float a = x > kFloorFp8 ? x : kFloorFp8;
    const int e = exact_exponent(a, 448);
    fp8 += scale_exponent(a * kInverse448) != float(e);
    fp8 += scale_exponent(a / kE4m3Max) != float(e);
    fp8 += scale_exponent(arith::hopper::div_full(a, kE4m3Max)) != float(e);
    const float b = x > kFloorMxfp4 ? x : kFloorMxfp4;
    fp4 += scale_exponent(b * kInverse6) != float(exact_exponent(b, 6));
  }
  CHECK(fp8 == 0);
  CHECK(fp4 == 0);
}

TEST_CASE("scales of float32 values can be half the exact ones, and the clamp catches it") {
  for (const std::uint32_t bits : {0x3F600001U, 0x3FE00001U, 0x40600001U, 0x41600001U}) {
    const float a = arith::from_bits(bits);
    const float e = scale_exponent(a * kInverse448);
    CHECK(e == float(exact_exponent(a, 448) - 1));
    CHECK(clamped_e4m3(a / std::ldexp(1.0F, int(e))) == 0x7E);
  }
}

TEST_CASE("scale bytes clamp, codes of NaN and infinity are those of the clamp") {
  const float inf = arith::from_bits(0x7F800000U);
  CHECK(scale_byte(-22) == 105);  // the floor 1e-4 of FP8 blocks
  CHECK(scale_byte(-200) == 0);
  CHECK(scale_byte(128) == 255);
  CHECK(scale_byte(inf) == 255);
  CHECK(scale_exponent(kFloorFp8 * kInverse448) == -22);
  CHECK(scale_exponent(kFloorMxfp4 * kInverse6) == -126);
  CHECK(clamped_e4m3(inf) == 0x7E);
  CHECK(clamped_e4m3(-inf) == 0xFE);
  CHECK(clamped_e4m3(arith::from_bits(0x7FFFFFFFU)) == 0x7E);
  CHECK(packed_e2m1(-0.0F, 2.5F) == 0x48);
}
