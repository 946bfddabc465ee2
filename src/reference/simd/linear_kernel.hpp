/// The matrix product of section 6 for one group of outputs: blocks of 128 inputs ascending, each a fold of
/// fma in a register tile of kTileRows tokens and kTileColumns outputs, then out = fma(s, block, out).
#pragma once

#include "reference/simd/panel.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// One tile: kRows tokens whose inputs lie kSumBlock apart. `out` has rows of kTileColumns. `next_x` are the
/// inputs of the tile after this one: they are fetched meanwhile, since all rows would else miss the first
/// cache at once.
template <int kRows>
[[maybe_unused]] static void product_tile(const float* x, const float* panel, int64_t inputs,
                                          const float* x_scale, const float* w_scale, float* out,
                                          const float* next_x) {
  Vec b[kRows][2] = {};
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    fetch(out + r * kTileColumns);
    fetch(out + r * kTileColumns + kWidth);
  }
  for (int64_t k = 0; k < inputs; ++k) {
    fetch(next_x + k * kRows);
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
                     const float* w_scale, float* out, const float* next_x) {
    product_tile<kRows>(x, panel, inputs, x_scale, w_scale, out, next_x);
  }
};

/// Where a panel of weights begins: a block of inputs of kTileColumns outputs, and how much of it there is.
struct Panel {
  int64_t block;
  int64_t first;
  int64_t inputs;
  int64_t outputs;
};
DSV4_TILE Panel panel_at(const LinearTask& task, int64_t block, int64_t first) {
  const int64_t inputs = task.columns - block * kSumBlock;
  const int64_t outputs = task.outputs - first;
  return {block, first, inputs < kSumBlock ? inputs : kSumBlock,
          outputs < kTileColumns ? outputs : kTileColumns};
}

/// Fetches row n of a panel into the second cache.
DSV4_TILE void fetch_weights(const LinearTask& task, const Panel& panel, int64_t n) {
  if (n >= panel.outputs) return;
  const int64_t at = (panel.first + n) * task.columns + panel.block * kSumBlock;
  const char* const begin = task.codes != nullptr ? reinterpret_cast<const char*>(task.codes + at)
                                                  : reinterpret_cast<const char*>(task.bf16 + at);
  const int64_t bytes = task.codes != nullptr ? panel.inputs : 2 * panel.inputs;
  for (int64_t i = 0; i < bytes; i += kCacheLine) fetch_far(begin + i);
  fetch_far(begin + bytes - 1);
}

/// One panel of weights against all tokens of the task, one block of inputs. The weights of the panel after
/// it are fetched meanwhile, a few rows a tile.
[[maybe_unused]] static void linear_panel(const LinearTask& task, const Panel& at, const Panel& next,
                                          float* panel, float* sums) {
  const int64_t weights = at.first * task.columns + at.block * kSumBlock;
  const float* w_scales = task.w_scales + at.block * task.outputs + at.first;
  if (task.codes != nullptr) {
    decode_panel(task.codes + weights, task.columns, at.outputs, at.inputs, panel);
  } else {
    decode_panel(task.bf16 + weights, task.columns, at.outputs, at.inputs, panel);
  }
  float scales[kTileColumns];
  for (int n = 0; n < kTileColumns; ++n) scales[n] = 1.0F;
  if (task.dequantize) {
    dequantize_panel(w_scales, at.outputs, at.inputs, panel);
  } else {
    for (int64_t n = 0; n < at.outputs; ++n) scales[n] = w_scales[n];
  }
  const float* x = task.x + at.block * task.tokens * kSumBlock;
  const float* x_scales = task.x_scales + at.block * task.tokens;
  const RowSplit split = split_rows(task.tokens);
  const int64_t fetched_rows = (kTileColumns + split.tiles - 1) / split.tiles;
  for (int64_t tile = 0, t = 0; tile < split.tiles; t += split.rows(tile), ++tile) {
    for (int64_t i = 0; i < fetched_rows; ++i) fetch_weights(task, next, tile * fetched_rows + i);
    const float* const next_x = tile + 1 < split.tiles ? x + (t + split.rows(tile)) * kSumBlock
                                                       : task.x + next.block * task.tokens * kSumBlock;
    with_rows<ProductTile, kTileRows>(split.rows(tile), x + t * kSumBlock, static_cast<const float*>(panel),
                                      at.inputs, x_scales + t, static_cast<const float*>(scales),
                                      sums + t * kTileColumns, next_x);
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
      const Panel at = panel_at(task, block, p * kTileColumns);
      Panel next = at;
      if (p + 1 < panels) {
        next = panel_at(task, block, (p + 1) * kTileColumns);
      } else if ((block + 1) * kSumBlock < task.columns) {
        next = panel_at(task, block + 1, 0);
      }
      linear_panel(task, at, next, panel, sums + p * task.tokens * kTileColumns);
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
