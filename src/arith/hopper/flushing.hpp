/// float32 operations of code compiled to flush subnormals (`.ftz`): FADD, FMUL and FFMA. docs/hopper.md 3.
///
/// A subnormal operand is a zero of its sign, and so is a result that is too small. Host and device; any NaN
/// is 0x7FFFFFFF.
#pragma once

#include "arith/fma.hpp"
#include "arith/hopper/mufu.hpp"

namespace dsv4::arith::hopper {

/// The hardware looks at the result as rounded to 24 bits with no lower bound of the exponent: what is
/// exactly 2^-126 - 2^-151 or more rounds to 2^-126 and stays, what is less becomes zero.
inline constexpr double kTiny = 0x1p-126 - 0x1p-151;

/// The rounded result, or a zero of its sign if the exact one, sum + lost, is too small.
DSV4_FN float flush_tiny(float rounded, double sum, double lost) {
  const double magnitude = sum < 0 ? -sum : sum;
  const bool below = magnitude < kTiny || (magnitude == kTiny && (sum < 0 ? lost > 0 : lost < 0));
  return below ? from_bits(to_bits(rounded) & 0x80000000U) : canonical_nan(rounded);
}

/// Sums that are too small are exact.
DSV4_FN float add_ftz(float a, float b) {
  return canonical_nan(flush(flush(a) + flush(b)));
}
DSV4_FN float mul_ftz(float a, float b) {
  const float x = flush(a);
  const float y = flush(b);
  return flush_tiny(x * y, static_cast<double>(x) * static_cast<double>(y), 0.0);  // exact in double
}
/// a * b + c, one rounding.
DSV4_FN float fma_ftz(float a, float b, float c) {
  const float x = flush(a);
  const float y = flush(b);
  const float z = flush(c);
  // The product is exact in double; TwoSum gives the sum and what it lost.
  const double product = static_cast<double>(x) * static_cast<double>(y);
  const double addend = static_cast<double>(z);
  const double sum = product + addend;
  const double shadow = sum - product;
  const double lost = (product - (sum - shadow)) + (addend - shadow);
  return flush_tiny(fma(x, y, z), sum, lost);
}

}  // namespace dsv4::arith::hopper
