/// Tiles of dot32 in registers: kRows keys against kTileColumns heads, with the tree of section 5.
///
/// A vector holds one lane of the dots of many heads, so that the 32 lanes of a dot come one after the other.
/// They are visited in bit-reversed order 0, 16, 8, 24, 4, ...; a finished lane is added to a stack of
/// earlier results as a binary counter carries. The addends of each addition are exactly those of the tree.
#pragma once

#include "reference/simd/linear_kernel.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

constexpr int bit_reversed(int i) {
  return ((i & 1) << 4) | ((i & 2) << 2) | (i & 4) | ((i & 8) >> 2) | ((i & 16) >> 4);
}

/// Floats of the carry stack: five levels of a tile.
constexpr int kStackFloats = 5 * kTileRows * kTileColumns;

/// out[r * out_stride + n] = dot32(key r, query column n). Keys lie kKeyStride apart; queries are transposed,
/// element d of column n at query[d * query_stride + n]. For long dots: the stores of finished lanes hold up
/// the multiply-adds of short ones.
template <int kRows, int kDim, int kKeyStride>
[[maybe_unused]] static void dot_tile(const float* keys, const float* query, int64_t query_stride,
                                      float* stack, float* out, int64_t out_stride) {
  constexpr int kTile = kRows * kTileColumns;
  float* top = stack;
  for (int visit = 0; visit < kLanes; ++visit) {
    Vec a[kRows][2] = {};
    for (int d = bit_reversed(visit); d < kDim; d += kLanes) {
      const float* q = query + d * query_stride;
      const Vec q0 = load(q);
      const Vec q1 = load(q + kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec k = broadcast(keys[r * kKeyStride + d]);
        a[r][0] = fma(k, q0, a[r][0]);
        a[r][1] = fma(k, q1, a[r][1]);
      }
    }
    for (int carry = visit; (carry & 1) != 0; carry >>= 1) {
      top -= kTile;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        a[r][0] = load(top + r * kTileColumns) + a[r][0];
        a[r][1] = load(top + r * kTileColumns + kWidth) + a[r][1];
      }
    }
    const bool last = visit == kLanes - 1;
    float* const to = last ? out : top;
    const int64_t stride = last ? out_stride : kTileColumns;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      store(to + r * stride, a[r][0]);
      store(to + r * stride + kWidth, a[r][1]);
    }
    top += kTile;
  }
}

/// rows [heads][dim] to columns [dim][padded]; columns beyond `heads` are 0. dim is a multiple of kWidth.
DSV4_TILE void transpose_query(const float* rows, int64_t heads, int64_t dim, int64_t padded, float* out) {
  for (int64_t h = 0; h < padded; h += kWidth) {
    for (int64_t d = 0; d < dim; d += kWidth) {
      Vec square[kWidth] = {};
      for (int i = 0; i < kWidth; ++i) {
        if (h + i < heads) square[i] = load(rows + (h + i) * dim + d);
      }
      transpose<kWidth>(square);
      for (int i = 0; i < kWidth; ++i) store(out + (d + i) * padded + h, square[i]);
    }
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
