/// Attention whose logits and probabilities are bf16. Implements section 17.4 (axis softmax bf16).
#pragma once

#include "reference/attention.hpp"

namespace dsv4::reference {

/// z = bf16(bf16(dot32(q, k)) * scale); s = bf16(sink); m = max of z, and of s with `sink_in_max`;
/// e = exp(bf16(z - m)); den = sum32(e) + exp(bf16(s - m)); p = bf16(e / den); out = bf16(fold of fma(p, v,
/// O)); lse = m + log(sum32(e)). `call.keys` as in attention(), at least one of them valid; sum32 is by list
/// index.
void attention_bf16(const AttentionCall& call, int heads, const float* sink, bool sink_in_max);

}  // namespace dsv4::reference
