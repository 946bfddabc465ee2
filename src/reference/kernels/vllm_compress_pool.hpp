/// Pooling of a window of compressor state in vLLM's Triton kernels: softmax over rows, column by column, and
/// the weighted sum. contracts/vllm.md sections 9.1 and 9.2; docs/kernel-models.md, vLLM.
///
/// Exponentials are ex2 (subnormals kept) of rn(rn(score - max) * log2 e); each is divided by their sum
/// (div.full) before the weighted sum. A chain of products starts as fma(p0, kv0, rn(p1 * kv1)).
#pragma once

#include <span>

namespace dsv4::kernels {

/// Pools one column. `scores` and `kv` have one value per row, masked rows -inf and 0.
using PoolColumn = float (*)(std::span<const float> scores, std::span<const float> kv);

/// A thread owns all rows of its columns (8 or 128): one chain over rows 0, 1, 2, ...
float vllm_pool_one_stage(std::span<const float> scores, std::span<const float> kv);

/// 128 rows on a tile of four warps: warp w, row group g own rows 4w + g + 16k, k = 0..7; groups add as
/// (g0 + g2) + (g1 + g3), warps the same way. The sum of exponentials and the weighted sum alike.
float vllm_pool_two_stage(std::span<const float> scores, std::span<const float> kv);

}  // namespace dsv4::kernels
