/// Block quantisers with power-of-two scales. Implements section 4 (conversions of section 3).
///
/// amax of a block, floored; q = amax / M (IEEE); the scale is the power of two at or above q;
/// code = convert(x * 2^-e), one rounding in each step. e4m3: M = 448; e2m1: M = 6.
#pragma once

#include <cstdint>

#include "model/profile.hpp"

namespace dsv4::reference {

/// What keeps the scale of an all but empty block away from zero (axes kv_cache, activation_floor).
enum class QuantFloor : std::uint8_t {
  amax,        ///< max(amax, 1e-4), then / 448
  scale,       ///< max(amax / 448, 1e-4)
  small_amax,  ///< max(amax, 1e-10), then / 448
};

/// Of KV rows and of activations under a profile.
QuantFloor kv_floor(const Profile& profile);
QuantFloor activation_floor(const Profile& profile);

/// n values in blocks of `block` (the last may be short): codes [n], ue8m0 scales [ceil(n / block)].
void quantize_e4m3(const std::uint16_t* bf16, std::int64_t n, int block, QuantFloor floor,
                   std::uint8_t* codes, std::uint8_t* scales);
/// From f32 values that were never rounded to bf16 (axes kv_row, index_row, out_rotation).
void quantize_e4m3(const float* x, std::int64_t n, int block, QuantFloor floor, std::uint8_t* codes,
                   std::uint8_t* scales);

/// n values in blocks of 32, amax floored at 6 * 2^-126; one code a byte [n], ue8m0 scales [ceil(n / 32)].
void quantize_e2m1(const std::uint16_t* bf16, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales);

/// The same from f32 values.
void quantize_e2m1(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales);
/// Axis fp4_rule ties_down (section 17.7): amax floored at 1e-4, ties to the smaller magnitude, no -0.
void quantize_e2m1_ties_down(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales);

/// Axis index_scale f32 (section 17.6): one block, scale = max(amax, 1e-4) / 448 as it is, codes of
/// x * (1 / scale).
void quantize_e4m3_f32_scale(const float* x, std::int64_t n, std::uint8_t* codes, float* scale);

/// code * 2^e of each element as f32 (exact but for overflow and underflow of f32, where it rounds once).
void dequantize_e4m3(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, int block,
                     float* out);
/// Two codes a byte, even element in the low nibble, blocks of 32.
void dequantize_e2m1_packed(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                            float* out);
/// The values of e4m3 codes without a scale.
void decode_e4m3(const std::uint8_t* codes, std::int64_t n, float* out);
/// One code a byte, with scales of blocks of 32.
void dequantize_e2m1(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, float* out);

/// bf16 rows to f32 (exact) and back (one rounding).
void widen_bf16(const std::uint16_t* in, std::int64_t n, float* out);
void round_bf16(const float* in, std::int64_t n, std::uint16_t* out);

}  // namespace dsv4::reference
