/// Weights of a tile, decoded to f32 with outputs innermost: panel[k * kTileColumns + n], as a tile of the
/// matrix product reads them. Section 6 (operands), 3 (conversions).
#pragma once

#include <stdint.h>
#include <string.h>

#include "reference/simd/rows.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t Bytes16At __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t Halves8 __attribute__((vector_size(16)));

/// Interleaves the low or high halves of two vectors: the step of a transposition.
DSV4_TILE Bytes16 low_pairs(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
DSV4_TILE Bytes16 high_pairs(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
DSV4_TILE Halves8 low_pairs(Halves8 a, Halves8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
DSV4_TILE Halves8 high_pairs(Halves8 a, Halves8 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

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

typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));

/// Bytes [kPart * kWidth, (kPart + 1) * kWidth) as 32-bit words. Compilers do not find the instruction
/// themselves.
template <int kPart>
DSV4_TILE Words widened(Bytes16 v) {
#if defined(__AVX512F__)
  static_assert(kPart == 0);
  // The masked form: g++ 12 warns of an uninitialised value inside the plain one.
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu8_epi32(0xFFFF, reinterpret_cast<__m128i>(v)));
#elif defined(__AVX2__)
  if constexpr (kPart == 1)
    v = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  return reinterpret_cast<Words>(_mm256_cvtepu8_epi32(reinterpret_cast<__m128i>(v)));
#else
  return Words{v[4 * kPart], v[4 * kPart + 1], v[4 * kPart + 2], v[4 * kPart + 3]};
#endif
}

/// arith::e4m3_to_f32, written for a vector of codes.
DSV4_TILE Vec codes_to_f32(Words code) {
  const Words sign = (code & 0x80U) << 24;
  const Words magnitude = code & 0x7FU;
  const Words normal = (magnitude << 20) + ((127U - 7U) << 23);
  const Vec small = reinterpret_cast<Vec>(magnitude + 0x46800000U) - 16384.0F;
  const Words finite = (magnitude < 8U ? reinterpret_cast<Words>(small) : normal) | sign;
  const Words nan = Words{} + arith::kNanBits;
  return reinterpret_cast<Vec>(magnitude == 0x7FU ? nan : finite);
}

/// The first kColumns codes of a vector to consecutive floats.
template <int kColumns, int kPart = 0>
DSV4_TILE void store_codes(Bytes16 v, float* out) {
  store(out + kPart * kWidth, codes_to_f32(widened<kPart>(v)));
  if constexpr ((kPart + 1) * kWidth < kColumns) store_codes<kColumns, kPart + 1>(v, out);
}

/// Elements in a square of the transposition, and outputs decoded together.
constexpr int kCodeSquare = 16;
constexpr int kHalfSquare = 8;
constexpr int kCodeColumns = kTileColumns < kCodeSquare ? kTileColumns : kCodeSquare;

/// e4m3 rows of `stride` codes: outputs [0, outputs) of the panel, inputs [0, inputs); the rest of the
/// panel's columns becomes 0.
[[maybe_unused]] static void decode_panel(const uint8_t* codes, int64_t stride, int64_t outputs,
                                          int64_t inputs, float* panel) {
  if (outputs < kTileColumns) memset(panel, 0, sizeof(float) * static_cast<size_t>(inputs * kTileColumns));
  for (int64_t n = 0; n < outputs; n += kCodeColumns) {
    int64_t k = 0;
    if (n + kCodeColumns <= outputs) {
      for (; k + kCodeSquare <= inputs; k += kCodeSquare) {
        Bytes16 square[kCodeSquare] = {};
        for (int i = 0; i < kCodeColumns; ++i) {
          square[i] = *reinterpret_cast<const Bytes16At*>(codes + (n + i) * stride + k);
        }
        transpose<kCodeSquare>(square);
        for (int i = 0; i < kCodeSquare; ++i) {
          store_codes<kCodeColumns>(square[i], panel + (k + i) * kTileColumns + n);
        }
      }
    }
    for (; k < inputs; ++k) {
      for (int64_t i = n; i < outputs && i < n + kCodeColumns; ++i) {
        panel[k * kTileColumns + i] = arith::e4m3_to_f32(codes[i * stride + k]);
      }
    }
  }
}

/// bf16 rows, the same.
[[maybe_unused]] static void decode_panel(const uint16_t* bf16, int64_t stride, int64_t outputs,
                                          int64_t inputs, float* panel) {
  if (outputs < kTileColumns) memset(panel, 0, sizeof(float) * static_cast<size_t>(inputs * kTileColumns));
  for (int64_t n = 0; n < outputs; n += kHalfSquare) {
    int64_t k = 0;
    if (n + kHalfSquare <= outputs) {
      for (; k + kHalfSquare <= inputs; k += kHalfSquare) {
        Halves8 square[kHalfSquare];
        for (int i = 0; i < kHalfSquare; ++i) {
          memcpy(&square[i], bf16 + (n + i) * stride + k, sizeof(Halves8));
        }
        transpose<kHalfSquare>(square);
        for (int i = 0; i < kHalfSquare; ++i) {
          uint16_t column[kHalfSquare];
          memcpy(column, &square[i], sizeof(column));
          float* out = panel + (k + i) * kTileColumns + n;
          for (int j = 0; j < kHalfSquare; ++j) out[j] = arith::bf16_to_f32(column[j]);
        }
      }
    }
    for (; k < inputs; ++k) {
      for (int64_t i = n; i < outputs && i < n + kHalfSquare; ++i) {
        panel[k * kTileColumns + i] = arith::bf16_to_f32(bf16[i * stride + k]);
      }
    }
  }
}

/// Weights as bf16 values of code * scale, one scale an output (axis linear bf16, wo_a).
[[maybe_unused]] static void dequantize_panel(const float* scales, int64_t outputs, int64_t inputs,
                                              float* panel) {
  float padded[kTileColumns] = {};
  for (int64_t n = 0; n < outputs; ++n) padded[n] = scales[n];
  for (int64_t k = 0; k < inputs; ++k) {
    float* row = panel + k * kTileColumns;
    for (int n = 0; n < kTileColumns; ++n) row[n] = to_bf16_value(row[n] * padded[n]);
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
