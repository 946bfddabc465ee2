/// Pooling of a window of compressor state in vLLM's Triton kernels: softmax over rows, column by column, and
/// the weighted sum. contracts/vllm.md sections 9.1 and 9.2; docs/kernel-models.md, vLLM.
#pragma once

#include <cstdint>
#include <span>

namespace dsv4::kernels {

/// Who adds the rows of a column, and in which order.
///   one_stage: a thread owns all rows of its columns: one chain over rows 0, 1, 2, ...
///   two_stage: a tile of 32 columns, 128 rows: warp w, row group g own rows 4w + g + 16k, k = 0..7; groups
///   add as (g0 + g2) + (g1 + g3), warps the same way.
/// Either way a chain of products starts as fma(p0, kv0, rn(p1 * kv1)).
enum class PoolOrder { one_stage, two_stage };

/// One column. `scores` and `kv` have one value per row, masked rows -inf and 0; two_stage needs 128 rows.
/// Exponentials are ex2 (subnormals kept) of rn(rn(score - max) * log2 e); each is divided by their sum
/// (div.full) before the weighted sum.
float vllm_pool_column(std::span<const float> scores, std::span<const float> kv, PoolOrder order);

}  // namespace dsv4::kernels
