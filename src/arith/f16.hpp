/// IEEE half precision: 1 sign, 5 exponent, 10 mantissa bits, kept as raw bits. docs/numerics.md
/// section 17.8.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// Exact; NaN becomes 0x7FC00000.
DSV4_FN constexpr float f16_to_f32(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = code & 0x7FFFU;
  if (magnitude > 0x7C00U) return from_bits(kNanBits);
  if (magnitude == 0x7C00U) return from_bits(sign | 0x7F800000U);
  // Subnormal codes count steps of 2^-24: the difference of two floats in [0.5, 1), whose step is 2^-24.
  const float small = from_bits(0x3F000000U + magnitude) - 0.5F;
  const std::uint32_t finite =
      magnitude < 0x0400U ? to_bits(small) : (magnitude << 13) + ((127U - 15U) << 23);
  return from_bits(sign | finite);
}

/// Nearest even; overflow to infinity; subnormals and -0 kept; every NaN becomes 0x7E00.
DSV4_FN constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = to_bits(value);
  if (is_nan_bits(bits)) return 0x7E00U;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  if (absolute >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65520 and above
  // Below 2^-14 the step is 2^-24, that of floats in [0.5, 1): the addition rounds to nearest even.
  const std::uint32_t small = to_bits(from_bits(absolute) + 0.5F) - 0x3F000000U;
  const std::uint32_t normal = ((absolute + 0xFFFU + ((absolute >> 13) & 1U)) >> 13) - ((127U - 15U) << 10);
  return static_cast<std::uint16_t>(sign | (absolute < 0x38800000U ? small : normal));
}

}  // namespace dsv4::arith
