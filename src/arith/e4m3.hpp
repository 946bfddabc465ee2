/// float8 e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits; largest 448; no infinity; 0x7F and 0xFF are
/// NaN. docs/numerics.md section 3.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// Exact; both NaN codes become 0x7FC00000.
DSV4_FN constexpr float e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  const std::uint32_t normal = (magnitude << 20) + ((127U - 7U) << 23);
  // Subnormal codes count steps of 2^-9: the difference of two floats in [2^14, 2^15), whose step is 2^-9, is
  // exact.
  const float small = from_bits(0x46800000U + magnitude) - 16384.0F;
  const std::uint32_t finite = magnitude < 8U ? to_bits(small) : normal;
  return from_bits(magnitude == 0x7FU ? kNanBits : (finite | sign));
}

/// Four codes, the first in the low byte: the same values as four calls of e4m3_to_f32, in fewer steps. A code's
/// seven bits, moved to where a float keeps exponent and mantissa, count as a number 2^120 too small; the product
/// is exact, for subnormal codes too.
DSV4_FN constexpr void e4m3x4_to_f32(std::uint32_t codes, float (&values)[4]) {
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t top = codes << (24 - 8 * i);
    const std::uint32_t moved = (top & 0x80000000U) | ((top >> 4) & 0x07F00000U);
    values[i] = from_bits(moved) * 0x1p120F;
  }
  if ((((codes & 0x7F7F7F7FU) + 0x01010101U) & 0x80808080U) == 0U) return;
  for (int i = 0; i < 4; ++i) {
    if (((codes >> (8 * i)) & 0x7FU) == 0x7FU) values[i] = from_bits(kNanBits);
  }
}

/// Clamp to +-448, then round to nearest even; subnormals and -0 kept; every NaN becomes 0x7F.
DSV4_FN constexpr std::uint8_t f32_to_e4m3(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (!__builtin_is_constant_evaluated()) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(value));
    return static_cast<std::uint8_t>(pair);
  }
#endif
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = absolute > 0x43E00000U ? 0x43E00000U : absolute;
  const std::uint32_t normal = ((clamped + 0x7FFFFU + ((clamped >> 20) & 1U)) >> 20) - ((127U - 7U) << 3);
  // Below 2^-6 the step is 2^-9, that of floats in [2^14, 2^15): the addition rounds to nearest even.
  const std::uint32_t small = to_bits(from_bits(clamped) + 16384.0F) - 0x46800000U;
  const std::uint32_t finite = clamped < 0x3C800000U ? small : normal;
  return static_cast<std::uint8_t>(absolute > 0x7F800000U ? 0x7FU : (finite | sign));
}

}  // namespace dsv4::arith
