/// exp of a float, correctly rounded for every input. docs/numerics.md section 7.
///
/// Plain double arithmetic without fused operations, so that every machine computes the same intermediate bits;
/// an exhaustive test proves the result. Straight-line code: loops over it vectorise.
#pragma once

#include "arith/round_odd.hpp"

namespace dsv4::arith {

/// Overflow gives +inf, exp(-inf) = +0, NaN gives NaN; subnormal results are kept.
DSV4_FN float exp(float x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits behind the point: its product with k is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  constexpr double kShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits

  // Beyond these bounds the result is 0 or infinity anyway; NaN passes through.
  const float bounded = x < -105.0F ? -105.0F : (x > 90.0F ? 90.0F : x);
  const double value = static_cast<double>(bounded);
  const double shifted = value * kLog2E + kShift;
  const double k = shifted - kShift;
  // r = value - k ln 2 as r + r_low; the first difference is exact.
  const double first = value - k * kLn2High;
  const double second = k * kLn2Low;
  const double r = first - second;
  const double r_low = (first - r) - second;

  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;

  // exp(r) = 1 + r + r^2 p as high + low.
  const double one_plus = 1.0 + r;
  const double tail = (r - (one_plus - 1.0)) + (r_low + r * r * p);
  const double high = one_plus + tail;
  const double low = tail - (high - one_plus);
  const double scale = from_bits64((to_bits64(shifted) + 1023U) << 52);
  return static_cast<float>(round_to_odd(high, low) * scale);
}

}  // namespace dsv4::arith
