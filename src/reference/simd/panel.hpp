/// Weights of a tile, decoded to f32 with outputs innermost: panel[k * kTileColumns + n], as a tile of the
/// matrix product reads them. Section 6 (operands), 3 (conversions).
#pragma once

#include <stdint.h>
#include <string.h>

#include "reference/simd/rows.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(4 * kWidth)));

/// Interleaves the low or high halves of two vectors: the step of a transposition.
#if defined(__AVX512F__)
DSV4_TILE Vec low_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
DSV4_TILE Vec high_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__)
DSV4_TILE Vec low_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
DSV4_TILE Vec high_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
DSV4_TILE Vec low_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
DSV4_TILE Vec high_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#endif

/// Rows become columns: kCount vectors of kCount elements. Interleaving vector i with vector i + kCount / 2,
/// log2 (kCount) times, is a transposition.
template <int kCount, class V>
DSV4_TILE void transpose(V* v) {
  for (int step = 1; step < kCount; step *= 2) {
    V next[kCount];
    for (int i = 0; i < kCount / 2; ++i) {
      next[2 * i] = low_pairs(v[i], v[i + kCount / 2]);
      next[2 * i + 1] = high_pairs(v[i], v[i + kCount / 2]);
    }
    for (int i = 0; i < kCount; ++i) v[i] = next[i];
  }
}

// Steps of a transposition inside 128-bit lanes, and a table of 16 bytes for every lane.
#if defined(__AVX512BW__)
DSV4_TILE Bytes low_bytes(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm512_unpacklo_epi8(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
DSV4_TILE Bytes high_bytes(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm512_unpackhi_epi8(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
DSV4_TILE Bytes low_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm512_unpacklo_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
DSV4_TILE Bytes high_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm512_unpackhi_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
DSV4_TILE Bytes looked_up(Bytes16 table, Bytes index) {
  const __m512i everywhere = _mm512_maskz_broadcast_i32x4(0xFFFF, reinterpret_cast<__m128i>(table));
  return reinterpret_cast<Bytes>(_mm512_shuffle_epi8(everywhere, reinterpret_cast<__m512i>(index)));
}
#elif defined(__AVX2__)
DSV4_TILE Bytes low_bytes(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm256_unpacklo_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
DSV4_TILE Bytes high_bytes(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm256_unpackhi_epi8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
DSV4_TILE Bytes low_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm256_unpacklo_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
DSV4_TILE Bytes high_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      _mm256_unpackhi_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
DSV4_TILE Bytes looked_up(Bytes16 table, Bytes index) {
  const __m256i everywhere = _mm256_broadcastsi128_si256(reinterpret_cast<__m128i>(table));
  return reinterpret_cast<Bytes>(_mm256_shuffle_epi8(everywhere, reinterpret_cast<__m256i>(index)));
}
#else
typedef uint16_t Halves __attribute__((vector_size(16)));

DSV4_TILE Bytes low_bytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
DSV4_TILE Bytes high_bytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
DSV4_TILE Bytes low_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(__builtin_shufflevector(
      reinterpret_cast<Halves>(a), reinterpret_cast<Halves>(b), 0, 8, 1, 9, 2, 10, 3, 11));
}
DSV4_TILE Bytes high_halves(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(__builtin_shufflevector(
      reinterpret_cast<Halves>(a), reinterpret_cast<Halves>(b), 4, 12, 5, 13, 6, 14, 7, 15));
}
DSV4_TILE Bytes looked_up(Bytes16 table, Bytes index) {
#if defined(__SSSE3__)
  return reinterpret_cast<Bytes>(
      _mm_shuffle_epi8(reinterpret_cast<__m128i>(table), reinterpret_cast<__m128i>(index)));
#elif defined(__aarch64__)
  return reinterpret_cast<Bytes>(
      vqtbl1q_u8(reinterpret_cast<uint8x16_t>(table), reinterpret_cast<uint8x16_t>(index)));
#else
  Bytes out;
  for (int i = 0; i < 16; ++i) out[i] = table[index[i] & 15];
  return out;
#endif
}
#endif

/// Lane j is 16 bytes of row 4 * j; rows lie `stride` bytes apart.
DSV4_TILE Bytes load_rows(const uint8_t* rows, [[maybe_unused]] int64_t stride) {
#if defined(__AVX512BW__)
  const auto row = [&](int j) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + 4 * j * stride));
  };
  __m512i lanes = _mm512_maskz_broadcast_i32x4(0x000F, row(0));
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00F0, row(1));
  lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0F00, row(2));
  return reinterpret_cast<Bytes>(_mm512_mask_broadcast_i32x4(lanes, 0xF000, row(3)));
#elif defined(__AVX2__)
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + 4 * stride));
  return reinterpret_cast<Bytes>(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
#else
  Bytes row;
  memcpy(&row, rows, sizeof(row));
  return row;
#endif
}

/// Codes as the two upper bytes of their f32 values, which hold all of them (arith::e4m3_to_f32).
struct UpperBytes {
  Bytes high, low;
};
DSV4_TILE UpperBytes upper_bytes(Bytes code) {
  // By exponent; f32 exponent = e + 120. Exponent 0: by the mantissa, which counts steps of 2^-9.
  constexpr Bytes16 kHigh{0x3C, 0x3C, 0x3D, 0x3D, 0x3E, 0x3E, 0x3F, 0x3F,
                          0x40, 0x40, 0x41, 0x41, 0x42, 0x42, 0x43, 0x43};
  constexpr Bytes16 kLow{0x00, 0x80, 0x00, 0x80, 0x00, 0x80, 0x00, 0x80,
                         0x00, 0x80, 0x00, 0x80, 0x00, 0x80, 0x00, 0x80};
  constexpr Bytes16 kSmallHigh{0x00, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C};
  constexpr Bytes16 kSmallLow{0x00, 0x00, 0x80, 0xC0, 0x00, 0x20, 0x40, 0x60};
  const Bytes magnitude = code & 0x7F;
  const Bytes mantissa = code & 0x07;
  const Bytes exponent = reinterpret_cast<Bytes>(reinterpret_cast<Words>(code) >> 3) & 0x0F;
  Bytes high = looked_up(kHigh, exponent);
  Bytes low =
      looked_up(kLow, exponent) | (reinterpret_cast<Bytes>(reinterpret_cast<Words>(code) << 4) & 0x70);
  high = magnitude < 8 ? looked_up(kSmallHigh, mantissa) : high;
  low = magnitude < 8 ? looked_up(kSmallLow, mantissa) : low;
  high = high | (code & 0x80);
  const Bytes nan_high = Bytes{} + static_cast<uint8_t>(arith::kNanBits >> 24);
  const Bytes nan_low = Bytes{} + static_cast<uint8_t>(arith::kNanBits >> 16 & 0xFF);
  return {magnitude == 0x7F ? nan_high : high, magnitude == 0x7F ? nan_low : low};
}

/// Halves that are the upper ones of floats: the low or the high four of each lane.
DSV4_TILE Vec low_floats(Bytes upper) {
  return reinterpret_cast<Vec>(low_halves(Bytes{}, upper));
}
DSV4_TILE Vec high_floats(Bytes upper) {
  return reinterpret_cast<Vec>(high_halves(Bytes{}, upper));
}

/// The 32-bit words of a vector dealt out to its lanes: word i goes to lane i mod (kWidth / 4).
DSV4_TILE Bytes dealt(Bytes v) {
  const Words words = reinterpret_cast<Words>(v);
#if defined(__AVX512F__)
  return reinterpret_cast<Bytes>(
      __builtin_shufflevector(words, words, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
#elif defined(__AVX2__)
  return reinterpret_cast<Bytes>(__builtin_shufflevector(words, words, 0, 2, 4, 6, 1, 3, 5, 7));
#else
  return reinterpret_cast<Bytes>(words);
#endif
}

/// A row of codes to values times `scale`.
[[maybe_unused]] static void decode_e4m3(const uint8_t* codes, int64_t n, float scale, float* out) {
  const Vec factor = broadcast(scale);
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    Bytes row;
    memcpy(&row, codes + i, sizeof(row));
    const UpperBytes upper = upper_bytes(dealt(row));
    const Bytes first = low_bytes(upper.low, upper.high);
    const Bytes last = high_bytes(upper.low, upper.high);
    store(out + i, low_floats(first) * factor);
    store(out + i + kWidth, high_floats(first) * factor);
    store(out + i + 2 * kWidth, low_floats(last) * factor);
    store(out + i + 3 * kWidth, high_floats(last) * factor);
  }
  for (; i < n; ++i) out[i] = arith::e4m3_to_f32(codes[i]) * scale;
}

/// kWidth rows x 16 codes to columns. Lane j works on rows 4 j .. 4 j + 3, so that no element leaves its
/// lane.
DSV4_TILE void decode_square(const uint8_t* rows, int64_t stride, float* out) {
  const Bytes r0 = load_rows(rows, stride);
  const Bytes r1 = load_rows(rows + stride, stride);
  const Bytes r2 = load_rows(rows + 2 * stride, stride);
  const Bytes r3 = load_rows(rows + 3 * stride, stride);
  const Bytes even[2] = {low_bytes(r0, r2), high_bytes(r0, r2)};
  const Bytes odd[2] = {low_bytes(r1, r3), high_bytes(r1, r3)};
  for (int i = 0; i < 4; ++i) {  // four columns at a time
    const Bytes codes = i % 2 == 0 ? low_bytes(even[i / 2], odd[i / 2]) : high_bytes(even[i / 2], odd[i / 2]);
    const UpperBytes upper = upper_bytes(codes);
    const Bytes first = low_bytes(upper.low, upper.high);
    const Bytes last = high_bytes(upper.low, upper.high);
    float* const to = out + 4 * i * kTileColumns;
    store(to, low_floats(first));
    store(to + kTileColumns, high_floats(first));
    store(to + 2 * kTileColumns, low_floats(last));
    store(to + 3 * kTileColumns, high_floats(last));
  }
}

/// kWidth rows x 8 bf16 values, the same.
DSV4_TILE void decode_square(const uint16_t* rows, int64_t stride, float* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(rows);
  const int64_t pitch = 2 * stride;
  const Bytes r0 = load_rows(bytes, pitch);
  const Bytes r1 = load_rows(bytes + pitch, pitch);
  const Bytes r2 = load_rows(bytes + 2 * pitch, pitch);
  const Bytes r3 = load_rows(bytes + 3 * pitch, pitch);
  const Bytes even[2] = {low_halves(r0, r2), high_halves(r0, r2)};
  const Bytes odd[2] = {low_halves(r1, r3), high_halves(r1, r3)};
  for (int i = 0; i < 4; ++i) {  // two columns at a time
    const Bytes upper =
        i % 2 == 0 ? low_halves(even[i / 2], odd[i / 2]) : high_halves(even[i / 2], odd[i / 2]);
    store(out + 2 * i * kTileColumns, low_floats(upper));
    store(out + (2 * i + 1) * kTileColumns, high_floats(upper));
  }
}

DSV4_TILE float decoded(uint8_t code) {
  return arith::e4m3_to_f32(code);
}
DSV4_TILE float decoded(uint16_t bits) {
  return arith::bf16_to_f32(bits);
}

/// e4m3 codes or bf16 rows, `stride` elements apart: outputs [0, outputs) of the panel, inputs [0, inputs);
/// the rest of the panel's columns becomes 0.
template <class Element>
DSV4_TILE void decode_panel(const Element* rows, int64_t stride, int64_t outputs, int64_t inputs,
                            float* panel) {
  constexpr int kSquare = 16 / sizeof(Element);
  if (outputs < kTileColumns) memset(panel, 0, sizeof(float) * static_cast<size_t>(inputs * kTileColumns));
  for (int64_t n = 0; n < outputs; n += kWidth) {
    int64_t k = 0;
    if (n + kWidth <= outputs) {
      for (; k + kSquare <= inputs; k += kSquare) {
        decode_square(rows + n * stride + k, stride, panel + k * kTileColumns + n);
      }
    }
    for (; k < inputs; ++k) {
      for (int64_t i = n; i < outputs && i < n + kWidth; ++i) {
        panel[k * kTileColumns + i] = decoded(rows[i * stride + k]);
      }
    }
  }
}

/// Weights as bf16 values of code * scale, one scale an output (axis linear bf16, wo_a).
[[maybe_unused]] static void dequantize_panel(const float* scales, int64_t outputs, int64_t inputs,
                                              float* panel) {
  float padded[kTileColumns] = {};
  for (int64_t n = 0; n < outputs; ++n) padded[n] = scales[n];
  const Vec s0 = load(padded);
  const Vec s1 = load(padded + kWidth);
  for (int64_t k = 0; k < inputs; ++k) {
    float* row = panel + k * kTileColumns;
    store(row, to_bf16_values(load(row) * s0));
    store(row + kWidth, to_bf16_values(load(row + kWidth) * s1));
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
