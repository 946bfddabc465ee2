/// SGLang's compressor pooling of ratio 128 (c128_v2.cuh, read at 6ed5780c4fd3; nvcc 13.0.88, fast-math:
/// subnormals flush everywhere). Contract: sglang.md sections 3.2 and 10.
///
/// State and input rows are [kv d | score d] float32, a state page holds the 128 rows of a window. `bias`
/// [128, d] float32 is added to the scores when they are read. Warp w of 16 takes rows 8w..8w+7 as the
/// ratio-4 kernel takes its eight (sglang_softmax8), without the division; the 16 results are merged
/// (sglang_merge).
#pragma once

#include "reference/kernels/sglang_plan.hpp"

namespace dsv4::kernels {

/// Decoding: row i of `input` [batch, 2d] goes to the state; where it is the last of its state page, row i of
/// `pooled` [batch, d] is made from that page. Other rows of `pooled` stay as they are.
void sglang_c128_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                        std::int64_t d, const SglangState& state, float* pooled);

/// Prefill: row i of `pooled` [plans, d] is the entry of `plans[i]`: rows j < count from the state as it was,
/// the others from `input` [tokens, 2d]; then the rows of `writes` go to the state.
void sglang_c128_prefill(std::span<const SglangCompressPlan> plans, std::span<const SglangWritePlan> writes,
                         const float* input, const float* bias, std::int64_t d, const SglangState& state,
                         float* pooled);

}  // namespace dsv4::kernels
