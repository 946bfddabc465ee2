/// The special-function unit of Hopper (sm_90), bit for bit: ex2, rcp, rsqrt and lg2, each in the form that
/// flushes subnormals (the instruction itself) and in the form that keeps them (what the assembler wraps
/// around it). docs/hopper.md 1 and 2. Integers decide every bit; the few float products are single IEEE
/// operations.
///
/// Any NaN that comes out is 0x7FFFFFFF. Host and device.
#pragma once

#include "arith/bits.hpp"
#include "arith/hopper/mufu_tables.hpp"

namespace dsv4::arith::hopper {

/// The one NaN that the hardware writes.
inline constexpr std::uint32_t kHardwareNan = 0x7FFFFFFFU;
inline constexpr std::uint32_t kInfinity = 0x7F800000U;

DSV4_FN float canonical_nan(float value) {
  return is_nan_bits(to_bits(value)) ? from_bits(kHardwareNan) : value;
}
/// FMUL and FADD of the hardware: IEEE, with its NaN.
DSV4_FN float mul(float a, float b) {
  return canonical_nan(a * b);
}
DSV4_FN float add(float a, float b) {
  return canonical_nan(a + b);
}
/// Subnormals become zeros of their sign.
DSV4_FN float flush(float value) {
  const std::uint32_t bits = to_bits(value);
  return (bits & kInfinity) == 0U ? from_bits(bits & 0x80000000U) : value;
}

/// The truncated square of a 17-bit x (docs/hopper.md 1.2): partial products are cut before they are added.
DSV4_FN std::int64_t truncated_square(std::uint32_t x) {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = 1; bit <= 16; ++bit) sum += (x >> (18U - bit)) & (0U - ((x >> bit) & 1U));
  return static_cast<std::int64_t>(sum >> 1);
}

/// c0 * 2^shift + c1 * x + c2 * square, `square` with its own scale.
DSV4_FN std::int64_t quadratic(const Segment& s, int shift, std::uint32_t x, std::int64_t square) {
  return static_cast<std::int64_t>(s.c0) * (std::int64_t{1} << shift) +
         static_cast<std::int64_t>(s.c1) * static_cast<std::int64_t>(x) +
         static_cast<std::int64_t>(s.c2) * square;
}

/// 2^x. Results below 2^-126 become +0.
DSV4_FN float ex2_ftz(float x) {
  const std::uint32_t bits = to_bits(x);
  if (is_nan_bits(bits)) return from_bits(kHardwareNan);
  const bool negative = (bits >> 31) != 0U;
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  if (absolute >= 0x43800000U) return from_bits(negative ? 0U : kInfinity);  // |x| >= 256
  // floor(|x| * 2^23): the significand times 2^(exponent - 127), an argument below 2^-23 becomes 0.
  const int exponent = static_cast<int>(absolute >> 23) - 127;
  const std::uint32_t significand = (absolute & 0x7FFFFFU) | 0x800000U;
  std::uint32_t fixed = 0;
  if (exponent >= 0)
    fixed = significand << exponent;
  else if (exponent > -24)
    fixed = significand >> -exponent;
  std::uint32_t fraction = fixed & 0x7FFFFFU;
  int whole = static_cast<int>(fixed >> 23);
  if (negative && fraction == 0U) {
    whole = -whole;
  } else if (negative) {  // ones' complement
    fraction = 0x7FFFFFU - fraction;
    whole = -1 - whole;
  }
  if (whole >= 128) return from_bits(kInfinity);
  if (whole < -126) return from_bits(0U);
  const std::uint32_t low = fraction & 0x1FFFFU;
  const std::int64_t v = quadratic(ex2_segment(fraction >> 17), 13, low, truncated_square(low)) + 0x77E2;
  return from_bits((static_cast<std::uint32_t>(whole + 127) << 23) |
                   (static_cast<std::uint32_t>(v >> 15) & 0x7FFFFFU));
}

/// 1 / x. Subnormal x is a zero, a result below 2^-126 becomes zero.
DSV4_FN float rcp_ftz(float x) {
  const std::uint32_t bits = to_bits(x);
  if (is_nan_bits(bits)) return from_bits(kHardwareNan);
  const std::uint32_t sign = bits & 0x80000000U;
  const std::uint32_t field = (bits >> 23) & 0xFFU;
  if (field == 0U) return from_bits(sign | kInfinity);
  if (field == 0xFFU) return from_bits(sign);
  const std::uint32_t mantissa = bits & 0x7FFFFFU;
  const std::uint32_t low = mantissa & 0xFFFFU;
  const std::int64_t v = quadratic(rcp_segment(mantissa >> 16), 13, low, truncated_square(2U * low)) + 0x47E7;
  // significand * 2^-24 * 2^-(field - 127); 2^24 carries into the exponent.
  const auto significand = static_cast<std::uint32_t>(v >> 15);
  const int exponent = 253 - static_cast<int>(field) + static_cast<int>(significand >> 24);
  if (exponent <= 0) return from_bits(sign);
  return from_bits(sign | static_cast<std::uint32_t>(exponent) << 23 | (significand & 0x7FFFFFU));
}

/// 1 / sqrt(x). Subnormal x is a zero of its sign: infinity of that sign. Negative x gives NaN.
DSV4_FN float rsqrt_ftz(float x) {
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t field = (bits >> 23) & 0xFFU;
  if (is_nan_bits(bits)) return from_bits(kHardwareNan);
  if (field == 0U) return from_bits((bits & 0x80000000U) | kInfinity);
  if ((bits >> 31) != 0U) return from_bits(kHardwareNan);
  if (field == 0xFFU) return from_bits(0U);
  const int exponent = static_cast<int>(field) - 127;
  const std::uint32_t j = (static_cast<std::uint32_t>(exponent & 1) << 23) | (bits & 0x7FFFFFU);
  const std::uint32_t low = j & 0x1FFFFU;
  const std::int64_t v = quadratic(rsqrt_segment(j >> 17), 14, low, 4 * truncated_square(low)) + 0x7FFF;
  const std::uint32_t significand = j == 0U ? 0x1000000U : static_cast<std::uint32_t>(v >> 16);
  const int half = (exponent - (exponent & 1)) / 2;
  return from_bits(static_cast<std::uint32_t>(126 - half + static_cast<int>(significand >> 24)) << 23 |
                   (significand & 0x7FFFFFU));
}

/// log2(x). Subnormal x of either sign is a zero: -inf. Other negative x gives NaN.
DSV4_FN float lg2_ftz(float x) {
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t field = (bits >> 23) & 0xFFU;
  if (is_nan_bits(bits)) return from_bits(kHardwareNan);
  if (field == 0U) return from_bits(0x80000000U | kInfinity);
  if ((bits >> 31) != 0U) return from_bits(kHardwareNan);
  if (field == 0xFFU) return from_bits(kInfinity);
  if (bits == 0x3F800000U) return 0.0F;
  const std::uint32_t mantissa = bits & 0x7FFFFFU;
  const std::uint32_t low = mantissa & 0x1FFFFU;
  const std::int64_t v = quadratic(lg2_segment(mantissa >> 17), 12, low, 2 * truncated_square(low)) + 0x3345;
  const std::int64_t fixed = (v >> 2) + (static_cast<std::int64_t>(field) - 127) * (std::int64_t{1} << 36);
  // Ones' complement below zero; then normalised and cut to 24 bits.
  const auto magnitude = static_cast<std::uint64_t>(fixed < 0 ? ~fixed : fixed);
  if (magnitude == 0U) return from_bits(fixed < 0 ? 0x80000000U : 0U);
#if defined(__CUDA_ARCH__)
  const int top = 63 - __clzll(static_cast<long long>(magnitude));
#else
  const int top = 63 - __builtin_clzll(magnitude);
#endif
  const std::uint64_t cut = top >= 23 ? magnitude >> (top - 23) : magnitude << (23 - top);
  return from_bits((fixed < 0 ? 0x80000000U : 0U) | static_cast<std::uint32_t>(top - 36 + 127) << 23 |
                   (static_cast<std::uint32_t>(cut) & 0x7FFFFFU));
}

// The forms that keep subnormals: what ptxas writes around the instruction for `.approx.f32` without `.ftz`.

/// x below -126 is halved and the result squared, which rounds a subnormal result once.
DSV4_FN float ex2(float x) {
  if (!(x < -126.0F)) return ex2_ftz(x);
  const float root = ex2_ftz(x * 0.5F);
  return root * root;
}
/// Argument and result times 2^24 below 2^-126, times 2^-2 above 2^126.
DSV4_FN float rcp(float x) {
  const std::uint32_t absolute = to_bits(x) & 0x7FFFFFFFU;
  float scale = absolute < 0x00800000U ? 0x1p24F : 1.0F;
  if (absolute > 0x7E800000U && absolute <= kInfinity) scale = 0.25F;
  return canonical_nan(rcp_ftz(x * scale) * scale);
}
/// A subnormal argument times 2^24, its result times 2^12.
DSV4_FN float rsqrt(float x) {
  if ((to_bits(x) & 0x7FFFFFFFU) >= 0x00800000U) return rsqrt_ftz(x);
  return mul(rsqrt_ftz(x * 0x1p24F), 0x1p12F);
}
/// A subnormal argument times 2^24, 24 taken from the result in one rounding.
DSV4_FN float lg2(float x) {
  if ((to_bits(x) & 0x7FFFFFFFU) >= 0x00800000U) return lg2_ftz(x);
  return add(lg2_ftz(x * 0x1p24F), -24.0F);
}

}  // namespace dsv4::arith::hopper
