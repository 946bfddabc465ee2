/// Sparse attention of prefill over bf16 rows: FlashMLA 9241ae3ef9ba, sm90 prefill sparse phase1 (512-wide
/// keys). docs/kernel-models.md, FlashMLA. Bits are those of the recorded kernel for 64 heads, with and
/// without lengths and sinks.
#pragma once

#include <cstdint>

#include "reference/kernels/flashmla_block.hpp"

namespace dsv4::kernels {

/// What kernel and compiler (nvcc 13.0.88) chose.
struct FlashmlaPrefillRules {
  /// Odd blocks run their dot products over dims 256..511 first.
  bool odd_upper_dims_first = true;
  FlashExponent exponent = FlashExponent::fused;
  FlashRowSum row_sum = FlashRowSum::pairs;
};

struct FlashmlaSparsePrefill {
  std::int64_t tokens = 0;
  std::int64_t keys = 0;
  int heads = 64;  ///< 64 or 128
  /// Of these the first are real, the rest pads the kernel's tile: outputs of theirs are not computed. 0: all
  /// are real.
  int live_heads = 0;
  int topk = 0;    ///< a positive multiple of 128
  float softmax_scale = 0;
  const std::uint16_t* q = nullptr;       ///< bf16 [tokens, heads, 512]
  const std::uint16_t* kv = nullptr;      ///< bf16 [keys, 512]
  const std::int32_t* indices = nullptr;  ///< [tokens, topk]; below 0 or from `keys` on is no key
  const std::int32_t* topk_lengths =
      nullptr;                  ///< [tokens]: list entries from there on are no keys; null: topk
  const float* sink = nullptr;  ///< [heads], may be infinite; null: none
  FlashmlaPrefillRules rules{};
};

/// Without a key: out zeros, max_logits -inf, lse +inf.
struct FlashmlaSparsePrefillOutput {
  std::uint16_t* out = nullptr;  ///< bf16 [tokens, heads, 512]
  float* max_logits = nullptr;   ///< [tokens, heads]: largest score times softmax_scale
  float* lse = nullptr;          ///< [tokens, heads], natural, without the sink
};

/// Throws InternalError for a shape that the kernel refuses.
void flashmla_sparse_prefill(const FlashmlaSparsePrefill& in, const FlashmlaSparsePrefillOutput& out);

}  // namespace dsv4::kernels
