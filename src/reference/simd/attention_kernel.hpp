/// Attention of one token, sections 15 and 18. All heads share the keys: logits are tiles of keys x heads,
/// the softmax goes along heads, values are tiles of heads x channels with the keys innermost.
#pragma once

#include "arith/log.hpp"
#include "reference/simd/dot_tile.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// Keys of a tile are copied to rows that do not collide in the first cache.
constexpr int kKeyRow = kKeyDim + 16;
/// Keys whose values are added before the sums go back to memory; also the block of the online form.
constexpr int kValueBlock = 64;

/// Parts of the scratch memory. `padded` heads a row.
struct AttentionScratch {
  int64_t padded;
  float* query;  ///< [512][padded]
  float* e;      ///< [count][padded]: logits, then exponentials
  float* lanes;  ///< [32][padded]
  float* m;      ///< [padded] maximum so far, and so on
  float* next_m;
  float* sum;
  float* factor;
  float* sink;
  float* o;     ///< [padded][512]
  float* keys;  ///< [kTileRows][kKeyRow]
  float* stack;
};

DSV4_TILE AttentionScratch split_scratch(const AttentionTask& task) {
  AttentionScratch s{};
  s.padded = padded_heads(task.heads);
  s.query = task.scratch;
  s.e = s.query + s.padded * kKeyDim;
  s.lanes = s.e + s.padded * task.count;
  s.m = s.lanes + s.padded * kLanes;
  s.next_m = s.m + s.padded;
  s.sum = s.next_m + s.padded;
  s.factor = s.sum + s.padded;
  s.sink = s.factor + s.padded;
  s.o = s.sink + s.padded;
  s.keys = s.o + s.padded * kKeyDim;
  s.stack = s.keys + kTileRows * kKeyRow;
  return s;
}

template <int kRows>
struct LogitTile {
  DSV4_TILE void run(const float* keys, const float* query, int64_t padded, float* stack, float* out) {
    dot_tile<kRows, kKeyDim, kKeyRow>(keys, query, padded, stack, out, padded);
  }
};

/// z = dot32(q, k) * scale for every key and head.
DSV4_TILE void logits(const AttentionTask& task, const AttentionScratch& s) {
  const float scale = arith::from_bits(0x3D3504F3U);  // f32(512^-0.5)
  const RowSplit split = split_rows(task.count);
  for (int64_t tile = 0, j = 0; tile < split.tiles; j += split.rows(tile), ++tile) {
    const int64_t rows = split.rows(tile);
    for (int64_t r = 0; r < rows; ++r)
      memcpy(s.keys + r * kKeyRow, task.keys[j + r], sizeof(float) * kKeyDim);
    for (int64_t h = 0; h < s.padded; h += kTileColumns) {
      with_rows<LogitTile, kTileRows>(rows, static_cast<const float*>(s.keys),
                                      static_cast<const float*>(s.query + h), s.padded, s.stack,
                                      s.e + j * s.padded + h);
    }
    float* const z = s.e + j * s.padded;
    for (int64_t i = 0; i < rows * s.padded; ++i) z[i] = z[i] * scale;
  }
}

/// O of kRows heads and kTileColumns channels over keys [0, count): (O * factor, then) a fold of fma(e, v,
/// O).
template <int kRows>
[[maybe_unused]] static void value_tile(const float* const* keys, int64_t count, int64_t channel,
                                        const float* e, int64_t padded, const float* factor, float* o) {
  Vec a[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    a[r][0] = load(o + r * kKeyDim);
    a[r][1] = load(o + r * kKeyDim + kWidth);
  }
  if (factor != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec f = broadcast(factor[r]);
      a[r][0] = a[r][0] * f;
      a[r][1] = a[r][1] * f;
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    const float* v = keys[j] + channel;
    const Vec v0 = load(v);
    const Vec v1 = load(v + kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec p = broadcast(e[j * padded + r]);
      a[r][0] = fma(p, v0, a[r][0]);
      a[r][1] = fma(p, v1, a[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    store(o + r * kKeyDim, a[r][0]);
    store(o + r * kKeyDim + kWidth, a[r][1]);
  }
}

template <int kRows>
struct ValueTile {
  DSV4_TILE void run(const float* const* keys, int64_t count, int64_t channel, const float* e, int64_t padded,
                     const float* factor, float* o) {
    value_tile<kRows>(keys, count, channel, e, padded, factor, o);
  }
};

/// Takes keys [begin, begin + count) into O.
DSV4_TILE void values(const AttentionTask& task, const AttentionScratch& s, int64_t begin, int64_t count,
                      const float* factor) {
  const RowSplit split = split_rows(task.heads);
  for (int64_t channel = 0; channel < kKeyDim; channel += kTileColumns) {
    for (int64_t tile = 0, h = 0; tile < split.tiles; h += split.rows(tile), ++tile) {
      with_rows<ValueTile, kTileRows>(split.rows(tile), task.keys + begin, count, channel,
                                      static_cast<const float*>(s.e + begin * s.padded + h), s.padded,
                                      factor == nullptr ? factor : factor + h, s.o + h * kKeyDim + channel);
    }
  }
}

/// next_m = max(m, z of keys [begin, end)).
DSV4_TILE void take_max(const AttentionScratch& s, int64_t begin, int64_t end, const float* m,
                        float* next_m) {
  for (int64_t h = 0; h < s.padded; ++h) next_m[h] = m[h];
  for (int64_t j = begin; j < end; ++j) {
    const float* z = s.e + j * s.padded;
    for (int64_t h = 0; h < s.padded; ++h) next_m[h] = max_of(next_m[h], z[h]);
  }
}

/// e = exp(z - m) in place, and lanes[0] = sum32 of e over list indices counted from `first_index`.
DSV4_TILE void exponentials(const AttentionTask& task, const AttentionScratch& s, int64_t begin, int64_t end,
                            const float* m, int64_t first_index) {
  for (int64_t i = 0; i < kLanes * s.padded; ++i) s.lanes[i] = 0.0F;
  for (int64_t j = begin; j < end; ++j) {
    float* e = s.e + j * s.padded;
    float* lane = s.lanes + (task.index[j] - first_index) % kLanes * s.padded;
    exp_in_place(e, m, s.padded);
    for (int64_t h = 0; h < s.padded; ++h) lane[h] = lane[h] + e[h];
  }
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t i = 0; i < step * s.padded; ++i) s.lanes[i] = s.lanes[i] + s.lanes[i + step * s.padded];
  }
}

DSV4_TILE void two_pass(const AttentionTask& task, const AttentionScratch& s) {
  take_max(s, 0, task.count, s.m, s.next_m);
  for (int64_t h = 0; h < s.padded; ++h) s.m[h] = s.next_m[h];
  exponentials(task, s, 0, task.count, s.m, 0);
  for (int64_t h = 0; h < s.padded; ++h) s.sum[h] = s.lanes[h];
  for (int64_t j = 0; j < task.count; j += kValueBlock) {
    values(task, s, j, task.count - j < kValueBlock ? task.count - j : kValueBlock, nullptr);
  }
}

/// Blocks of 64 list indices; a block without a valid key is one like any other.
DSV4_TILE void online64(const AttentionTask& task, const AttentionScratch& s) {
  for (int64_t first = 0, begin = 0; first < task.list_length; first += kValueBlock) {
    int64_t end = begin;
    while (end < task.count && task.index[end] < first + kValueBlock) ++end;
    take_max(s, begin, end, s.m, s.next_m);
    for (int64_t h = 0; h < s.padded; ++h) {
      const float f = arith::exp(s.m[h] - s.next_m[h]);
      s.factor[h] = s.m[h] == minus_infinity() ? 0.0F : f;
      s.m[h] = s.next_m[h];
    }
    exponentials(task, s, begin, end, s.m, first);
    for (int64_t h = 0; h < s.padded; ++h) s.sum[h] = arith::fma(s.sum[h], s.factor[h], s.lanes[h]);
    for (int64_t i = begin * s.padded; i < end * s.padded; ++i) s.e[i] = to_bf16_value(s.e[i]);
    values(task, s, begin, end - begin, s.factor);
    begin = end;
  }
}

[[maybe_unused]] static void attention(const AttentionTask& task) {
  const AttentionScratch s = split_scratch(task);
  // O's memory holds the widened query first.
  for (int64_t i = 0; i < int64_t{task.heads} * kKeyDim; ++i) s.o[i] = arith::bf16_to_f32(task.query[i]);
  transpose_query(s.o, task.heads, kKeyDim, s.padded, s.query);
  for (int64_t i = 0; i < s.padded * kKeyDim; ++i) s.o[i] = 0.0F;
  for (int64_t h = 0; h < s.padded; ++h) {
    s.sink[h] = h < task.heads ? task.sink[h] : 0.0F;
    s.m[h] = task.sink_in_max ? max_of(minus_infinity(), s.sink[h]) : minus_infinity();
    s.sum[h] = 0.0F;
  }
  logits(task, s);
  if (task.online64) {
    online64(task, s);
  } else {
    two_pass(task, s);
  }
  for (int64_t h = 0; h < task.heads; ++h) {
    const float den = s.sum[h] + arith::exp(s.sink[h] - s.m[h]);
    const float* o = s.o + h * kKeyDim;
    uint16_t* out = task.out + h * kKeyDim;
    for (int64_t c = 0; c < kKeyDim; ++c) out[c] = arith::f32_to_bf16(o[c] / den);
    task.lse[h] = s.m[h] + arith::log(s.sum[h]);
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
