/// SGLang's online compressor of ratio 128 (c128_online_v2.cuh, read at 6ed5780c4fd3; nvcc 13.0.88,
/// fast-math: subnormals flush everywhere). Contract: sglang.md sections 3.2, 8.3 and 11.
///
/// `state` [slots, 3d] float32 is [max d | sum d | mean kv d] a request: the bias is in the maximum, the mean
/// is already divided by the sum. `input` rows are [kv d | score d], `bias` is [128, d] by position mod 128.
#pragma once

#include "reference/kernels/sglang_plan.hpp"

namespace dsv4::kernels {

/// One token a request. At position 0 of a chunk (max, sum, kv) = (s, 1, kv). Else, with s the biased score:
///   x = max(m, s); a = rn(sum * EX2((m - x) log2 e)); n = EX2((s - x) log2 e); total = a + n;
///   kv' = fma(kv, a, rn(kv_new * n)) * RCP(total).
/// Reads slot page_before, writes slot write_row. Position 127 gives row i of `pooled` [batch, d] and writes
/// no state.
void sglang_c128_online_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                               std::int64_t d, std::span<float> state, float* pooled);

/// Segments of a chunk. The rows of a segment are pooled and merged as the ratio-128 kernel does, positions
/// of the chunk outside the segment with kv 0 and score -FLT_MAX; a segment that does not begin its chunk is
/// then folded into the slot that its plan reads (page_current, or page_before when that is negative):
///   x = max; a = rn(sum * EX2(..)), b = rn(sum_seg * EX2(..)); total = a + b;
///   kv = fma(kv, a, rn(kv_seg * b)) * RCP(total).
/// `closing` segments give rows of `pooled` [closing, d]; then `partial` ones are stored in slot page_before.
void sglang_c128_online_prefill(std::span<const SglangCompressPlan> closing,
                                std::span<const SglangCompressPlan> partial, const float* input,
                                const float* bias, std::int64_t d, std::span<float> state, float* pooled);

}  // namespace dsv4::kernels
