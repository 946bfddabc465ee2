/// Index scores of one token, sections 13 and 18: tiles of heads x keys, then the heads of each key.
///
/// Vectors go along keys, so that every addition of a score is one for a vector of keys, the sum over the
/// heads included. The tree of section 5 is a recursion that the compiler unrolls: the sum of lanes l and
/// l + 16, of that and the sum of lanes l + 8 and l + 24, and so on, with the addends of each addition in
/// registers.
#pragma once

#include "reference/simd/dot_tile.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// Heads of a tile: the unfinished sums of a tree share the registers with the running ones.
constexpr int kScoreRows = 4;

/// kRows heads x kVecs vectors of keys.
template <int kRows, int kVecs>
struct Sums {
  Vec v[kRows][kVecs];
};

/// Lane `lane` of the dots of section 5.
template <int kRows, int kVecs>
DSV4_TILE Sums<kRows, kVecs> lane_of(const float* query, const float* keys, int lane) {
  Sums<kRows, kVecs> a = {};
#pragma GCC unroll 8
  for (int step = 0; step < kIndexKeyDim / kLanes; ++step) {
    const int d = lane + step * kLanes;
    Vec k[kVecs];
    for (int i = 0; i < kVecs; ++i) k[i] = load(keys + d * kKeyPanel + i * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec q = broadcast(query[r * kIndexKeyDim + d]);
      for (int i = 0; i < kVecs; ++i) a.v[r][i] = fma(q, k[i], a.v[r][i]);
    }
  }
  return a;
}

/// What the tree holds at `lane` after the step of width kStep.
template <int kStep, int kRows, int kVecs>
DSV4_TILE Sums<kRows, kVecs> lane_sum(const float* query, const float* keys, int lane) {
  if constexpr (kStep == kLanes) {
    return lane_of<kRows, kVecs>(query, keys, lane);
  } else {
    const Sums<kRows, kVecs> a = lane_sum<2 * kStep, kRows, kVecs>(query, keys, lane);
    const Sums<kRows, kVecs> b = lane_sum<2 * kStep, kRows, kVecs>(query, keys, lane + kStep);
    Sums<kRows, kVecs> sum;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVecs; ++i) sum.v[r][i] = a.v[r][i] + b.v[r][i];
    }
    return sum;
  }
}

/// out[r * kKeyPanel + j] = dot32(query r, key j). `quarters` holds four tiles.
template <int kRows, int kVecs>
[[maybe_unused]] static void score_tile(const float* query, const float* keys, float* quarters, float* out) {
  constexpr int kTile = kRows * kVecs * kWidth;
  for (int lane = 0; lane < 4; ++lane) {
    const Sums<kRows, kVecs> sums = lane_sum<4, kRows, kVecs>(query, keys, lane);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVecs; ++i) store(quarters + lane * kTile + (r * kVecs + i) * kWidth, sums.v[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) {
      const float* q = quarters + (r * kVecs + i) * kWidth;
      const Vec even = load(q) + load(q + 2 * kTile);
      const Vec odd = load(q + kTile) + load(q + 3 * kTile);
      store(out + r * kKeyPanel + i * kWidth, even + odd);
    }
  }
}

template <int kRows>
struct ScoreTile {
  DSV4_TILE void run(const float* query, const float* keys, int64_t vectors, float* quarters, float* out) {
    if (vectors == 1) return score_tile<kRows, 1>(query, keys, quarters, out);
    score_tile<kRows, 2>(query, keys, quarters, out);
  }
};

/// The scores of a vector of keys, before their scale: dots of head h at dots + h * kKeyPanel. `lanes` holds
/// kLanes vectors.
DSV4_TILE Vec head_sum(const float* dots, const ScoreTask& task, float* lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    Vec a = {};
    for (int h = lane; h < task.heads; h += kLanes) {
      const Vec weight = broadcast(task.weights[h]);
      Vec t = load(dots + h * kKeyPanel);
      if (task.bf16_steps) t = to_bf16_values(t);
      t = t > 0.0F ? t : Vec{};
      a = task.bf16_steps ? a + to_bf16_values(t * weight) : fma(t, weight, a);
    }
    store(lanes + lane * kWidth, a);
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) {
      float* const a = lanes + lane * kWidth;
      store(a, load(a) + load(a + step * kWidth));
    }
  }
  const Vec sum = load(lanes);
  return task.bf16_steps ? to_bf16_values(sum) : sum;
}

[[maybe_unused]] static void pack_keys(const float* rows, int64_t count, float* panels) {
  for (int64_t j = 0; j < count; j += kKeyPanel) {
    const int64_t keys = count - j < kKeyPanel ? count - j : kKeyPanel;
    transpose_query(rows + j * kIndexKeyDim, keys, kIndexKeyDim, kKeyPanel, panels + j * kIndexKeyDim);
  }
}

[[maybe_unused]] static void scores(const ScoreTask& task) {
  float* const dots = task.scratch;
  float* const quarters = dots + padded_heads(task.heads) * kKeyPanel;
  float* const lanes = quarters + kLanes * kKeyPanel;
  const RowSplit split = split_rows(task.heads, kScoreRows);
  for (int64_t j = 0; j < task.count; j += kTileColumns) {
    const int64_t left = task.count - j < kTileColumns ? task.count - j : kTileColumns;
    const int64_t vectors = (left + kWidth - 1) / kWidth;
    const float* const keys = task.keys + j / kKeyPanel * kKeyPanelFloats + j % kKeyPanel;
    for (int64_t tile = 0, h = 0; tile < split.tiles; h += split.rows(tile), ++tile) {
      with_rows<ScoreTile, kScoreRows>(split.rows(tile), task.query + h * kIndexKeyDim, keys, vectors,
                                       quarters, dots + h * kKeyPanel);
    }
    for (int64_t v = 0; v < vectors; ++v) {
      float sums[kWidth];
      store(sums, head_sum(dots + v * kWidth, task, lanes));
      for (int64_t i = 0; i < kWidth && v * kWidth + i < left; ++i) {
        const int64_t key = j + v * kWidth + i;
        task.scores[key] = task.key_scales != nullptr ? sums[i] * task.key_scales[key] : sums[i];
      }
    }
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
