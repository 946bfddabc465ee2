/// SGLang's compressor pooling of ratio 4 (c4_v2.cuh, read at 6ed5780c4fd3; nvcc 13.0.88, fast-math:
/// subnormals flush everywhere). Contract: sglang.md sections 3.2 and 9.
///
/// State and input rows are [kv overlap d | kv d | score overlap d | score d], float32 (the state may be
/// bf16). The window of an entry that closes at position P is P-7..P: rows 0..3 take the overlap columns,
/// rows 4..7 the others, `bias` [8, d] float32 is added to the scores when they are read. For the first entry
/// of a sequence rows 0..3 are kv 0 and score -FLT_MAX. A channel:
///   s_i = score_i + bias_i; m = max s_i; e_i = EX2((s_i - m) * log2 e), each operation rounded;
///   prod = fma(kv_i, e_i, prod), sum = sum + e_i, rows ascending from 0; pooled = prod * RCP(sum).
#pragma once

#include "reference/kernels/sglang_plan.hpp"

namespace dsv4::kernels {

/// Decoding: row i of `input` [batch, 4d] goes to the state; where seq_len is a multiple of 4, row i of
/// `pooled` [batch, d] float32 is made from the state, the row just written included. Other rows of `pooled`
/// stay as they are.
void sglang_c4_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                      std::int64_t d, const SglangState& state, float* pooled);

/// Prefill: row i of `pooled` [plans, d] is the entry of `plans[i]`, from the state as it was and `input`
/// [tokens, 4d]; then the rows of `writes` go to the state.
void sglang_c4_prefill(std::span<const SglangCompressPlan> plans, std::span<const SglangWritePlan> writes,
                       const float* input, const float* bias, std::int64_t d, const SglangState& state,
                       float* pooled);

}  // namespace dsv4::kernels
