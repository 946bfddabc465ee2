/// Power-of-two scales of quantised blocks and codes, as vLLM's kernels compute them. contracts/vllm.md
/// sections 1.1, 1.2 and 1.7.
#pragma once

#include <cstdint>
#include <span>

#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "reference/kernels/device_math.hpp"
#include "reference/kernels/libdevice_log2.hpp"

namespace dsv4::kernels {

/// Largest e4m3 value, and 1/448 and 1/6 as float32: kernels divide by a constant or multiply by its inverse.
inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kInverse448 = 0x1.24924ap-9F;
inline constexpr float kInverse6 = 0x1.555556p-3F;
static_assert(arith::to_bits(kInverse448) == 0x3B124925U && arith::to_bits(kInverse6) == 0x3E2AAAABU);

/// Floors of a block's largest magnitude: FP8 keys and queries, FP8 attention output, MXFP4.
inline constexpr float kFloorFp8 = 1e-4F;
inline constexpr float kFloorOutput = 1e-10F;
inline constexpr float kFloorMxfp4 = 6 * 0x1p-126F;

/// `cvt.rpi.f32.f32`: towards +inf. Infinities and NaN stay.
inline float round_up(float x) {
  if (!(x > -0x1p23F && x < 0x1p23F)) return x;
  const float whole = static_cast<float>(static_cast<std::int32_t>(x));
  return whole < x ? whole + 1.0F : whole;
}

/// Exponent of the scale of a block whose largest magnitude, divided by the largest code, is `ratio`: log2f
/// rounded up. Where ratio lies within a few ulps above a power of two it is one below the exact one.
inline float scale_exponent(float ratio) {
  return round_up(libdevice_log2(ratio));
}

/// The stored byte: exponent + 127 clamped to 0..255.
inline std::uint8_t scale_byte(float exponent) {
  return static_cast<std::uint8_t>(device_max(device_min(exponent + 127.0F, 255.0F), 0.0F));
}

/// Largest magnitude of a block, not below `floor`. The maximum is exact in any order.
inline float floored_amax(std::span<const float> block, float floor) {
  float amax = floor;
  for (const float x : block) amax = device_max(amax, x < 0 ? -x : x);
  return amax;
}

/// `min.xorsign.abs` with 448, then `cvt.rn.satfinite.e4m3x2`: what Triton makes of a symmetric clamp. A NaN
/// (the hardware's is positive) becomes 448.
inline std::uint8_t clamped_e4m3(float x) {
  return arith::is_nan_bits(arith::to_bits(x)) ? std::uint8_t{0x7E} : arith::f32_to_e4m3(x);
}

/// Two e2m1 codes in a byte, the even element in the low half.
inline std::uint8_t packed_e2m1(float even, float odd) {
  return static_cast<std::uint8_t>(arith::f32_to_e2m1(even) | arith::f32_to_e2m1(odd) << 4);
}

}  // namespace dsv4::kernels
