/// Natural logarithm of a float, correctly rounded for every input. docs/numerics.md section 7.
///
/// Plain double arithmetic without fused operations; the result is kept as a sum of two doubles up to the one
/// rounding to float (a single double leaves five inputs wrong). Straight-line code: loops over it vectorise.
#pragma once

#include "arith/round_odd.hpp"

namespace dsv4::arith {

/// log(+-0) = -inf, log of a negative number and of NaN is NaN, log(+inf) = +inf.
DSV4_FN float log(float x) {
  constexpr std::uint64_t kSqrtHalf =
      0x3FE6A09E00000000U;  // about sqrt(1/2), the lower end of the mantissa's range
  constexpr std::uint64_t kOne = 0x3FF0000000000000U;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits behind the point: its product with k is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;

  // x = 2^k m, m in [sqrt(1/2), sqrt(2)); a subnormal float is a normal double.
  const std::uint64_t offset = to_bits64(static_cast<double>(x)) + (kOne - kSqrtHalf);
  const double m = from_bits64((offset & 0x000FFFFFFFFFFFFFU) + kSqrtHalf);
  const double k = from_bits64(0x4330000000000000U | (offset >> 52)) - (0x1p52 + 1023.0);

  // log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f). f and f^2 are exact.
  const double f = m - 1.0;
  const double half_square = 0.5 * (f * f);
  const double s = f / (2.0 + f);
  const double w = s * s;
  double p = 2.0 / 23.0;
  p = p * w + 2.0 / 21.0;
  p = p * w + 2.0 / 19.0;
  p = p * w + 2.0 / 17.0;
  p = p * w + 2.0 / 15.0;
  p = p * w + 2.0 / 13.0;
  p = p * w + 2.0 / 11.0;
  p = p * w + 2.0 / 9.0;
  p = p * w + 2.0 / 7.0;
  p = p * w + 2.0 / 5.0;
  p = p * w + 2.0 / 3.0;
  const double correction = s * (half_square + w * p);

  const double whole = k * kLn2High + f;  // exact: a multiple of 2^-42 below 2^7
  const double sum = whole - half_square;
  const double lost = (whole - sum) - half_square;
  const double tail = lost + (correction + k * kLn2Low);
  const double high = sum + tail;
  const double low = tail - (high - sum);
  const float result = static_cast<float>(round_to_odd(high, low));

  const std::uint32_t bits = to_bits(x);
  const bool zero = (bits << 1) == 0U;
  const bool positive = bits < 0x7F800000U;
  const float special = zero ? from_bits(0xFF800000U) : (bits == 0x7F800000U ? x : from_bits(kNanBits));
  return (positive & !zero) ? result : special;
}

}  // namespace dsv4::arith
