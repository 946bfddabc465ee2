/// What models of GPU kernels share: CUDA-core float32 operations as compiled code executes them, and the
/// order in which the lanes of a warp add. docs/kernel-models.md.
///
/// Two dialects. Code compiled with fast-math flushes subnormals: every operand and every result, keeping the
/// sign (ftz_*; what counts as a subnormal result is arith/hopper/flushing.hpp's). Other code is IEEE: plain
/// + and *, arith::fma. NaN: hardware returns 0x7FFFFFFF whatever went in. The payload is never read on the
/// way, so that models replace it once, where they store (stored, stored_bf16).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/fma.hpp"
#include "arith/hopper/flushing.hpp"

namespace dsv4::kernels {

inline constexpr std::uint32_t kDeviceNan = 0x7FFFFFFFU;
/// log2(e) and ln(2) as float32, the constants of every kernel that computes in powers of two.
inline constexpr float kLog2E = 0x1.715476p+0F;
inline constexpr float kLn2 = 0x1.62e430p-1F;
static_assert(arith::to_bits(kLog2E) == 0x3FB8AA3BU && arith::to_bits(kLn2) == 0x3F317218U);

/// Subnormal to zero of the same sign.
inline float ftz(float x) {
  const std::uint32_t bits = arith::to_bits(x);
  return (bits & 0x7F800000U) == 0 ? arith::from_bits(bits & 0x80000000U) : x;
}
inline float ftz_add(float a, float b) {
  return arith::hopper::add_ftz(a, b);
}
inline float ftz_sub(float a, float b) {
  return arith::hopper::add_ftz(a, -b);
}
inline float ftz_mul(float a, float b) {
  return arith::hopper::mul_ftz(a, b);
}
/// a * b + c, one rounding.
inline float ftz_fma(float a, float b, float c) {
  return arith::hopper::fma_ftz(a, b, c);
}

/// `max.f32` / `min.f32`: a NaN operand gives the other one; +0 is larger than -0.
inline float device_max(float a, float b) {
  if (arith::is_nan_bits(arith::to_bits(a))) return b;
  if (arith::is_nan_bits(arith::to_bits(b))) return a;
  if (a == b) return arith::from_bits(arith::to_bits(a) & arith::to_bits(b));
  return a > b ? a : b;
}
inline float device_min(float a, float b) {
  return -device_max(-a, -b);
}

/// What a store of a float32 result leaves in memory.
inline float stored(float x) {
  return arith::is_nan_bits(arith::to_bits(x)) ? arith::from_bits(kDeviceNan) : x;
}
/// `cvt.rn.bf16.f32`: nearest even, overflow to infinity, NaN becomes 0x7FFF.
inline std::uint16_t stored_bf16(float x) {
  return arith::is_nan_bits(arith::to_bits(x)) ? std::uint16_t{0x7FFF} : arith::f32_to_bf16(x);
}
/// x rounded to bf16 and widened again.
inline float through_bf16(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
/// `mul.rn.bf16`, subnormals kept. One rounding provided the exact product is a multiple of 2^-149 (always so
/// when one factor is an e4m3 value and the other a power of two).
inline std::uint16_t mul_bf16(std::uint16_t a, std::uint16_t b) {
  return stored_bf16(arith::bf16_to_f32(a) * arith::bf16_to_f32(b));
}

/// Shuffle-xor reduction: at each offset, lane i becomes lane i + lane (i xor offset). Addition commutes, so
/// all lanes end with the same bits; returns them. `lanes` (a power of two of them) is overwritten.
float butterfly_sum(std::span<float> lanes, std::initializer_list<int> offsets);
/// The same with subnormals flushed.
float ftz_butterfly_sum(std::span<float> lanes, std::initializer_list<int> offsets);

/// The orders in use: a whole warp, and a quad (the four lanes that share a row of a tensor-core fragment).
inline constexpr std::initializer_list<int> kWarpOffsets = {16, 8, 4, 2, 1};
inline constexpr std::initializer_list<int> kQuadOffsets = {1, 2};

}  // namespace dsv4::kernels
