/// float4 e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinity, no NaN. One code in the low four
/// bits of a byte. docs/numerics.md section 3.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// Exact; the high four bits of `code` are ignored.
DSV4_FN constexpr float e2m1_to_f32(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 8U) << 28;
  const std::uint32_t magnitude = code & 7U;
  const std::uint32_t normal = (magnitude << 22) + ((127U - 1U) << 23);
  const std::uint32_t small = magnitude == 0U ? 0U : 0x3F000000U;
  return from_bits((magnitude < 2U ? small : normal) | sign);
}

/// Round to nearest, ties to the even code; saturate at 6; -0 kept; every NaN becomes 0x7.
DSV4_FN constexpr std::uint8_t f32_to_e2m1(float value) {
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t sign = (bits >> 28) & 8U;
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = absolute > 0x40C00000U ? 0x40C00000U : absolute;
  const std::uint32_t normal = ((clamped + 0x1FFFFFU + ((clamped >> 22) & 1U)) >> 22) - ((127U - 1U) << 1);
  // Below 1 the step is 0.5, that of floats in [2^22, 2^23): the addition rounds to nearest even.
  const std::uint32_t small = to_bits(from_bits(clamped) + 4194304.0F) - 0x4A800000U;
  const std::uint32_t finite = clamped < 0x3F800000U ? small : normal;
  return static_cast<std::uint8_t>(absolute > 0x7F800000U ? 7U : (finite | sign));
}

}  // namespace dsv4::arith
