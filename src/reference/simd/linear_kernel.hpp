/// The matrix product of section 6 for one group of outputs: blocks of 128 inputs ascending, each a fold of
/// fma in a register tile of kTileRows tokens and kTileColumns outputs, then out = fma(s, block, out).
#pragma once

#include "reference/simd/panel.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// One tile: kRows tokens whose inputs lie kSumBlock apart. `out` has rows of kTileColumns.
template <int kRows>
[[maybe_unused]] static void product_tile(const float* x, const float* panel, int64_t inputs,
                                          const float* x_scale, const float* w_scale, float* out) {
  Vec b[kRows][2] = {};
  for (int64_t k = 0; k < inputs; ++k) {
    const Vec w0 = load(panel + k * kTileColumns);
    const Vec w1 = load(panel + k * kTileColumns + kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec a = broadcast(x[r * kSumBlock + k]);
      b[r][0] = fma(a, w0, b[r][0]);
      b[r][1] = fma(a, w1, b[r][1]);
    }
  }
  const Vec s0 = load(w_scale);
  const Vec s1 = load(w_scale + kWidth);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Vec a = broadcast(x_scale[r]);
    float* o = out + r * kTileColumns;
    store(o, fma(a * s0, b[r][0], load(o)));
    store(o + kWidth, fma(a * s1, b[r][1], load(o + kWidth)));
  }
}

/// Calls `Tile<rows>::run(args...)` for a number of rows known at run time.
template <template <int> class Tile, int kRows, class... Args>
DSV4_TILE void with_rows(int64_t rows, Args... args) {
  if constexpr (kRows > 1) {
    if (rows != kRows) return with_rows<Tile, kRows - 1>(rows, args...);
  }
  Tile<kRows>::run(args...);
}

/// Splits n rows into tiles of nearly equal height: a short last tile would leave registers idle.
struct RowSplit {
  int64_t tiles;
  int64_t base;
  int64_t larger;  ///< that many first tiles have one row more

  int64_t rows(int64_t tile) const { return base + (tile < larger ? 1 : 0); }
};
DSV4_TILE RowSplit split_rows(int64_t n, int64_t most = kTileRows) {
  if (n == 0) return {0, 0, 0};
  const int64_t tiles = (n + most - 1) / most;
  return {tiles, n / tiles, n % tiles};
}

template <int kRows>
struct ProductTile {
  DSV4_TILE void run(const float* x, const float* panel, int64_t inputs, const float* x_scale,
                     const float* w_scale, float* out) {
    product_tile<kRows>(x, panel, inputs, x_scale, w_scale, out);
  }
};

/// One panel of weights against all tokens of the task, one block of inputs.
[[maybe_unused]] static void linear_panel(const LinearTask& task, int64_t block, int64_t first, float* panel,
                                          float* sums) {
  const int64_t k = block * kSumBlock;
  const int64_t inputs = task.columns - k < kSumBlock ? task.columns - k : kSumBlock;
  const int64_t width = task.outputs - first < kTileColumns ? task.outputs - first : kTileColumns;
  const float* w_scales = task.w_scales + block * task.outputs + first;
  if (task.codes != nullptr) {
    decode_panel(task.codes + first * task.columns + k, task.columns, width, inputs, panel);
  } else {
    decode_panel(task.bf16 + first * task.columns + k, task.columns, width, inputs, panel);
  }
  float scales[kTileColumns];
  for (int n = 0; n < kTileColumns; ++n) scales[n] = 1.0F;
  if (task.dequantize) {
    dequantize_panel(w_scales, width, inputs, panel);
  } else {
    for (int64_t n = 0; n < width; ++n) scales[n] = w_scales[n];
  }
  const float* x = task.x + block * task.tokens * kSumBlock;
  const float* x_scales = task.x_scales + block * task.tokens;
  const RowSplit split = split_rows(task.tokens);
  for (int64_t tile = 0, t = 0; tile < split.tiles; t += split.rows(tile), ++tile) {
    with_rows<ProductTile, kTileRows>(split.rows(tile), x + t * kSumBlock, static_cast<const float*>(panel),
                                      inputs, x_scales + t, static_cast<const float*>(scales),
                                      sums + t * kTileColumns);
  }
}

/// Blocks outermost: a block's inputs stay in the second cache while every panel of the group reads them.
[[maybe_unused]] static void linear(const LinearTask& task) {
  float* const panel = task.scratch;
  float* const sums = panel + kTileColumns * kSumBlock;
  const int64_t panels = (task.outputs + kTileColumns - 1) / kTileColumns;
  memset(sums, 0, sizeof(float) * static_cast<size_t>(panels * task.tokens * kTileColumns));
  for (int64_t block = 0; block * kSumBlock < task.columns; ++block) {
    for (int64_t p = 0; p < panels; ++p) {
      linear_panel(task, block, p * kTileColumns, panel, sums + p * task.tokens * kTileColumns);
    }
  }
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t first = p * kTileColumns;
    const int64_t width = task.outputs - first < kTileColumns ? task.outputs - first : kTileColumns;
    for (int64_t t = 0; t < task.tokens; ++t) {
      const float* row = sums + (p * task.tokens + t) * kTileColumns;
      if (task.out_f32 != nullptr) {
        memcpy(task.out_f32 + t * task.out_stride + first, row, sizeof(float) * static_cast<size_t>(width));
      } else {
        round_bf16(row, width, task.out_bf16 + t * task.out_stride + first);
      }
    }
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
