/// Index scores of one token, sections 13 and 18: tiles of keys x heads, then the heads of each key.
#pragma once

#include "reference/simd/dot_tile.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// Keys of a tile: half as many as registers allow, two lanes of each.
constexpr int kScoreRows = kTileRows / 2;

template <int kRows>
struct ScoreTile {
  DSV4_TILE void run(const float* keys, const float* query, int64_t padded, float* stack, float* out) {
    dot_tile<kRows, 2, kIndexKeyDim, kIndexKeyDim>(keys, query, padded, stack, out, padded);
  }
};

/// Sum over the heads of one key; t is overwritten.
DSV4_TILE float head_sum(float* t, const ScoreTask& task) {
  for (int h = 0; h < task.heads; ++h) {
    if (task.bf16_steps) t[h] = to_bf16_value(t[h]);
    t[h] = t[h] > 0.0F ? t[h] : 0.0F;
  }
  if (!task.bf16_steps) return dot32(t, task.weights, task.heads);
  for (int h = 0; h < task.heads; ++h) t[h] = to_bf16_value(t[h] * task.weights[h]);
  return to_bf16_value(sum32(t, task.heads));
}

[[maybe_unused]] static void scores(const ScoreTask& task) {
  const int64_t padded = padded_heads(task.heads);
  float* const query = task.scratch;
  float* const dots = query + padded * kIndexKeyDim;
  float* const stack = dots + padded * kTileRows;
  transpose_query(task.query, task.heads, kIndexKeyDim, padded, query);
  const RowSplit split = split_rows(task.count, kScoreRows);
  for (int64_t tile = 0, j = 0; tile < split.tiles; j += split.rows(tile), ++tile) {
    const int64_t rows = split.rows(tile);
    for (int64_t h = 0; h < padded; h += kTileColumns) {
      with_rows<ScoreTile, kScoreRows>(rows, task.keys + j * kIndexKeyDim,
                                       static_cast<const float*>(query + h), padded, stack, dots + h);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = head_sum(dots + r * padded, task);
      task.scores[j + r] = task.key_scales != nullptr ? sum * task.key_scales[j + r] : sum;
    }
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
