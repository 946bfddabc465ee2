/// float32 operations of code compiled to flush subnormals (`.ftz`): FADD, FMUL and FFMA. docs/hopper.md 3.
///
/// A subnormal operand is a zero of its sign, and so is a result that is too small. Host and device; any NaN
/// is 0x7FFFFFFF.
#pragma once

#include "arith/fma.hpp"
#include "arith/hopper/mufu.hpp"

namespace dsv4::arith::hopper {

/// The hardware looks at the result as rounded to 24 bits with no lower bound of the exponent: what is
/// exactly 2^-126 - 2^-151 or more rounds to 2^-126 and stays, what is less becomes zero. A result rounded to
/// the step of subnormals leaves that open for 2^-126 alone.
inline constexpr double kTiny = 0x1p-126 - 0x1p-151;
inline constexpr std::uint32_t kLeastNormal = 0x00800000U;

/// Whether the exact sum + lost is below kTiny.
DSV4_FN bool is_tiny(double sum, double lost) {
  const double magnitude = sum < 0 ? -sum : sum;
  return magnitude < kTiny || (magnitude == kTiny && (sum < 0 ? lost > 0 : lost < 0));
}
DSV4_FN bool is_least_normal(float value) {
  return (to_bits(value) & 0x7FFFFFFFU) == kLeastNormal;
}

/// Sums that are too small are exact.
DSV4_FN float add_ftz(float a, float b) {
  return canonical_nan(flush(flush(a) + flush(b)));
}
DSV4_FN float mul_ftz(float a, float b) {
  const float x = flush(a);
  const float y = flush(b);
  const float rounded = x * y;
  // Exact in double.
  if (is_least_normal(rounded) && is_tiny(static_cast<double>(x) * static_cast<double>(y), 0.0))
    return from_bits(to_bits(rounded) & 0x80000000U);
  return canonical_nan(flush(rounded));
}
/// a * b + c, one rounding.
DSV4_FN float fma_ftz(float a, float b, float c) {
  const float x = flush(a);
  const float y = flush(b);
  const float z = flush(c);
  const float rounded = fma(x, y, z);
  if (is_least_normal(rounded)) {
    // The product is exact in double; TwoSum gives the sum and what it lost.
    const double product = static_cast<double>(x) * static_cast<double>(y);
    const double addend = static_cast<double>(z);
    const double sum = product + addend;
    const double shadow = sum - product;
    const double lost = (product - (sum - shadow)) + (addend - shadow);
    if (is_tiny(sum, lost)) return from_bits(to_bits(rounded) & 0x80000000U);
  }
  return canonical_nan(flush(rounded));
}

}  // namespace dsv4::arith::hopper
