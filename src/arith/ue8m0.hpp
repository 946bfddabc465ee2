/// ue8m0: a power of two as its biased exponent; byte b is 2^(b - 127), 255 is NaN. docs/numerics.md sections
/// 3 and 4.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// Exact; byte 0 is the subnormal 2^-127, byte 255 is NaN.
DSV4_FN constexpr float ue8m0_to_f32(std::uint8_t byte) {
  const std::uint32_t shifted = static_cast<std::uint32_t>(byte) << 23;
  const std::uint32_t finite = byte == 0U ? 0x00400000U : shifted;
  return from_bits(byte == 255U ? kNanBits : finite);
}

/// 2^(127 - b), exact: the factor by which a block is multiplied before it is rounded to codes. 255 is NaN.
DSV4_FN constexpr float ue8m0_inverse(std::uint8_t byte) {
  const std::uint32_t shifted = (254U - byte) << 23;
  const std::uint32_t finite = byte == 254U ? 0x00400000U : shifted;
  return from_bits(byte == 255U ? kNanBits : finite);
}

/// Scale byte of a block whose largest magnitude, already raised to the floor, is `amax_floored`: the
/// smallest power of two not below amax / largest (one IEEE division), capped at byte 254. `largest` is 448
/// (e4m3) or 6 (e2m1). An infinite amax gives 254.
DSV4_FN constexpr std::uint8_t ue8m0_scale_for(float amax_floored, float largest) {
  const std::uint32_t bits = to_bits(amax_floored / largest);
  const std::uint32_t byte = (bits >> 23) + ((bits & 0x7FFFFFU) != 0U ? 1U : 0U);
  return static_cast<std::uint8_t>(byte > 254U ? 254U : byte);
}

}  // namespace dsv4::arith
