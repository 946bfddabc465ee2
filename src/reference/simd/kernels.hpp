/// The hot functions of the reference engine as a table, one table for each instruction set.
///
/// This header is part of objects compiled for newer instruction sets: it includes plain C headers only and
/// defines no function with linkage. All pointers are to caller's memory; nothing allocates, throws or keeps
/// state. Every table gives the same bits (docs/numerics.md); float buffers need no alignment.
#pragma once

#include <stdint.h>

/// A function that no object lends to another.
#define DSV4_SIZE [[gnu::always_inline, maybe_unused]] static constexpr

namespace dsv4::reference::simd {

inline constexpr int kLanes = 32;      ///< lanes of dot32 and sum32, section 5
inline constexpr int kSumBlock = 128;  ///< inputs of one block sum, section 6
inline constexpr int kKeyDim = 512;    ///< of attention keys
inline constexpr int kIndexKeyDim = 128;
inline constexpr int kOutputGroup = 128;  ///< outputs of one LinearTask at most
inline constexpr int kTokenChunk = 384;   ///< tokens of one LinearTask at most
inline constexpr int kHeadPad = 32;       ///< head counts are padded to a multiple of this in scratch memory

/// One group of outputs for one chunk of tokens, section 6.
struct LinearTask {
  // Activations, f32: block b of token t at x + (b * tokens + t) * kSumBlock.
  const float* x;
  const float* x_scales;  ///< [blocks][tokens], 1 where there is no scale
  int64_t tokens;
  int64_t columns;
  // Weights: row n at codes + n * columns (e4m3) or bf16 + n * columns.
  const uint8_t* codes;
  const uint16_t* bf16;
  const float* w_scales;  ///< [blocks][outputs], 1 where there is no scale
  bool dequantize;        ///< e4m3 only: weights become bf16(code * w_scale) and the block scale is x_scale
  int64_t outputs;
  // Result: f32 (out_f32) or rounded to bf16 (out_bf16), token t at + t * out_stride.
  float* out_f32;
  uint16_t* out_bf16;
  int64_t out_stride;
  float* scratch;  ///< kLinearScratch floats
};
inline constexpr int64_t kLinearScratch = int64_t{kHeadPad} * kSumBlock + int64_t{kOutputGroup} * kTokenChunk;

/// Scores of one token, section 13. Keys lie in panels of kKeyPanel: element d of key j at
/// keys + j / kKeyPanel * kKeyPanelFloats + d * kKeyPanel + j % kKeyPanel.
inline constexpr int kKeyPanel = 32;
inline constexpr int64_t kKeyPanelFloats = int64_t{kIndexKeyDim} * kKeyPanel;
struct ScoreTask {
  const float* query;  ///< [heads][128]
  const float* weights;
  const float* keys;        ///< panels
  const float* key_scales;  ///< [count] or null
  int64_t count;
  int heads;
  bool bf16_steps;  ///< section 18
  float* scores;
  float* scratch;  ///< score_scratch(heads) floats
};
DSV4_SIZE int64_t padded_heads(int heads) {
  return (int64_t{heads} + kHeadPad - 1) / kHeadPad * kHeadPad;
}
DSV4_SIZE int64_t score_scratch(int heads) {
  return padded_heads(heads) * kKeyPanel + 2 * kLanes * kKeyPanel;
}

/// Attention of one token and a range of its heads, sections 15 and 18.
struct AttentionTask {
  const uint16_t* query;  ///< bf16 [heads][512]
  const float* sink;      ///< [heads]
  int heads;
  const float* const* keys;  ///< valid rows in list order
  const int32_t* index;      ///< list index of each, ascending
  int64_t count;             ///< at least 1
  int64_t list_length;
  bool online64;  ///< blocks of 64 list indices, probabilities rounded to bf16
  bool sink_in_max;
  uint16_t* out;   ///< bf16 [heads][512]
  float* lse;      ///< [heads]
  float* scratch;  ///< attention_scratch(heads, count) floats
};
DSV4_SIZE int64_t attention_scratch(int heads, int64_t count) {
  return padded_heads(heads) * (2 * kKeyDim + count + kLanes + 8) + 16 * (kKeyDim + 16) + 6 * 1024;
}

struct Kernels {
  // Sums, section 5.
  float (*dot32)(const float* x, const float* y, int64_t n);
  float (*sum32)(const float* x, int64_t n);

  // Conversions, section 3.
  void (*widen_bf16)(const uint16_t* in, int64_t n, float* out);
  void (*round_bf16)(const float* in, int64_t n, uint16_t* out);
  void (*decode_e4m3)(const uint8_t* codes, int64_t n, float scale, float* out);
  void (*decode_e2m1)(const uint8_t* codes, int64_t n, float scale, float* out);

  // One block of a quantiser, section 4: amax from +0, then codes of x * inverse.
  float (*amax)(const float* x, int64_t n);
  void (*encode_e4m3)(const float* x, int64_t n, float inverse, uint8_t* codes);
  void (*encode_e2m1)(const float* x, int64_t n, float inverse, uint8_t* codes);

  // Rows: y = x * factor, rounded to bf16 on the way if asked, times weight if there is one (section 8);
  // squares rounded to bf16 (section 18); rotation of n / 2 pairs (section 9), sin already signed; Hadamard
  // 128.
  void (*scale_row)(const float* x, int64_t n, float factor, bool round_first, const uint16_t* weight,
                    float* out);
  void (*squares_bf16)(const float* x, int64_t n, float* out);
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t pairs);
  void (*hadamard128)(float* x);

  // Pools, section 12.
  void (*pool)(const float* const* kv, const float* const* score, int64_t rows, int64_t d, float* pooled);
  void (*online_update)(const float* kv, const float* score, int64_t d, float* max, float* sum,
                        float* weighted);

  void (*linear)(const LinearTask& task);
  void (*pack_keys)(const float* rows, int64_t count, float* panels);  ///< rows [count][128]; rest 0
  void (*scores)(const ScoreTask& task);
  void (*attention)(const AttentionTask& task);

  // `rounds` times 16 independent vector fmas (benchmarks); returns the floating point operations done.
  double (*fma_rounds)(int64_t rounds);
};

/// The table of the selected instruction set.
const Kernels& kernels();

// One table an instruction set; null where this build does not hold it.
const Kernels* scalar_kernels();
const Kernels* generic_kernels();
const Kernels* v2_kernels();
const Kernels* v3_kernels();
const Kernels* v4_kernels();

}  // namespace dsv4::reference::simd
