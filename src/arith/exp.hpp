/// exp of a float, correctly rounded for every input. docs/numerics.md section 7.
///
/// Two evaluations of the same bits. exp_by_double carries the value in one double up to the single rounding
/// to float; an exhaustive test proves that this decides every input. exp_by_floats carries it as a sum of
/// two floats with a bounded error and says whether the bound leaves only one float to round to; where it
/// does, a second exhaustive test proves that float to be the one of exp_by_double. A device computes floats
/// at twice the rate of doubles or better and takes the second where it decides; a host's vector loops need
/// the first, which is straight-line code.
#pragma once

#include "arith/bits.hpp"
#include "arith/fma.hpp"

namespace dsv4::arith {

/// Every input. Plain double arithmetic without fused operations, so that all machines compute the same
/// intermediate bits.
DSV4_FN float exp_by_double(float x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits behind the point: its product with k is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  constexpr double kShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits

  // Beyond these bounds the result is 0 or infinity anyway; NaN passes through.
  const double wide = static_cast<double>(x);
  const double above = wide < -105.0 ? -105.0 : wide;
  const double value = above > 90.0 ? 90.0 : above;
  const double shifted = value * kLog2E + kShift;
  const double k = shifted - kShift;
  const double r = (value - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2; the first difference is exact

  // exp(r) = 1 + r + r^2 (1/2! + r/3! + ... + r^11/13!), the sum by halves: a short chain of dependent steps.
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double p01 = 1.0 / 2.0 + 1.0 / 6.0 * r;
  const double p23 = 1.0 / 24.0 + 1.0 / 120.0 * r;
  const double p45 = 1.0 / 720.0 + 1.0 / 5040.0 * r;
  const double p67 = 1.0 / 40320.0 + 1.0 / 362880.0 * r;
  const double p89 = 1.0 / 3628800.0 + 1.0 / 39916800.0 * r;
  const double p1011 = 1.0 / 479001600.0 + 1.0 / 6227020800.0 * r;
  const double low = p01 + p23 * r2;
  const double middle = p45 + p67 * r2;
  const double high = p89 + p1011 * r2;
  const double p = low + (middle + high * r4) * r4;

  const double scale = from_bits64((to_bits64(shifted) + 1023U) << 52);  // 2^k
  return static_cast<float>((1.0 + (r + r2 * p)) * scale);
}

/// A result that holds only if `decided`.
struct ExpByFloats {
  float value;
  bool decided;
};

/// About one input in 8,000 is left undecided, and all NaN, infinities and |x| >= 87: results that are
/// subnormal, zero or infinite among them.
///
/// Reduction: x = k ln(2) + r + rest, |r| <= 0.3466. kLn2High has 21 bits, so r is x or a multiple of
/// 2^-25 and one fma gives it exactly; rest = -k kLn2Low is below 2^-21. Polynomial: 1 + r + r^2/2 + c3 r^3 +
/// ... + c8 r^8, nearest to exp(r) by relative error (2^-39.1) with c3 the sum of two floats and all others
/// one float. Horner's scheme takes c8 ... c5 in plain floats; from c4 up each step is `sum = fma(r, before,
/// c)`, what that lost is `fma(r, before, c - sum)` (the difference is exact: sum is between c / 2 and 2 c),
/// and all that was lost goes along in `low`. Relative to the result:
///   2^-38.14  the rounding of the step of c5 (half an ulp of 2^-7), times |r|^5
///   2^-39.12  the polynomial
///   2^-41.8   the steps of c7 and c6, rest^2 / 2, the constants' and the sums' roundings in `low` and rest
/// Together less than 2^-37.47; the largest error measured is 2^-37.53. kBound is above both.
/// Rounding: both ends of (high + low) (1 +- kBound) round to the same float, or the input is undecided. The
/// result is normal and the sum between 0.7 and 1.42, so the factor 2^k is added to the exponent afterwards.
DSV4_FN ExpByFloats exp_by_floats(float x) {
  constexpr float kLog2E = 0x1.715476p+0F;
  constexpr float kLn2High = 0x1.62e43p-1F;
  constexpr float kLn2Low = -0x1.05c61p-29F;
  constexpr float kShift = 0x1.8p23F;    // adding it leaves the nearest integer in the low bits
  constexpr float kBound = 0x1.77p-38F;  // 2^-37.45
  constexpr float kC3 = 0x1.555556p-3F;
  constexpr float kC3Low = -0x1.dfbfccp-29F;
  constexpr float kC4 = 0x1.555556p-5F;
  constexpr float kC5 = 0x1.111092p-7F;
  constexpr float kC6 = 0x1.6c1492p-10F;
  constexpr float kC7 = 0x1.a19ceep-13F;
  constexpr float kC8 = 0x1.a3cf5cp-16F;

  const float shifted = fma(x, kLog2E, kShift);
  const float k = shifted - kShift;
  const float r = fma(k, -kLn2High, x);

  const float p5 = fma(fma(fma(kC8, r, kC7), r, kC6), r, kC5);
  const float p4 = fma(r, p5, kC4);
  const float lost4 = fma(r, p5, kC4 - p4);
  const float p3 = fma(r, p4, kC3);
  const float lost3 = fma(r, p4, kC3 - p3);
  const float low3 = lost3 + fma(r, lost4, kC3Low);
  const float p2 = fma(r, p3, 0.5F);
  const float lost2 = fma(r, p3, 0.5F - p2);
  const float low2 = fma(r, low3, lost2);
  const float p1 = fma(r, p2, 1.0F);
  const float lost1 = fma(r, p2, 1.0F - p1);
  const float low1 = fma(r, low2, lost1);
  const float high = fma(r, p1, 1.0F);
  const float lost0 = fma(r, p1, 1.0F - high);
  const float low0 = fma(r, low1, lost0);

  // exp(r) (rest + kBound) brings the rest in and goes to the upper end in one step.
  const float upper = fma(fma(k, -kLn2Low, kBound), high, low0);
  const float lower = fma(high, -2.0F * kBound, upper);
  const float most = high + upper;
  const float least = high + lower;
  const float value = from_bits(to_bits(most) + (to_bits(shifted) << 23));
  const bool same = most == least;
  const bool inside = __builtin_fabsf(x) < 87.0F;
  return {value, static_cast<bool>(same & inside)};  // both tests, one branch
}

/// Overflow gives +inf, exp(-inf) = +0, NaN gives NaN; subnormal results are kept.
DSV4_FN float exp(float x) {
#if defined(__CUDA_ARCH__)
  const ExpByFloats quick = exp_by_floats(x);
  return quick.decided ? quick.value : exp_by_double(x);
#else
  return exp_by_double(x);
#endif
}

}  // namespace dsv4::arith
