/// bfloat16: 1 sign, 8 exponent, 7 mantissa bits, kept as raw bits. docs/numerics.md section 3.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// Exact.
DSV4_FN constexpr float bf16_to_f32(std::uint16_t bits) {
  return from_bits(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even; overflow to infinity; subnormals and -0 kept; every NaN becomes 0x7FC0.
DSV4_FN constexpr std::uint16_t f32_to_bf16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if (!__builtin_is_constant_evaluated()) {
    std::uint16_t converted;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(converted) : "f"(value));
    return value == value ? converted : std::uint16_t{0x7FC0};
  }
#endif
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(is_nan_bits(bits) ? 0x7FC0U : rounded);
}

/// Two floats at once, rounded as above and left as floats; a NaN stays a NaN, with any bits.
DSV4_FN void round_to_bf16(float& a, float& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  a = from_bits(pair << 16);
  b = from_bits(pair & 0xFFFF0000U);
#else
  a = bf16_to_f32(f32_to_bf16(a));
  b = bf16_to_f32(f32_to_bf16(b));
#endif
}

}  // namespace dsv4::arith
