/// Softmax pooling of one compressor window, channel by channel. Implements section 12.4.
#pragma once

#include <cstdint>
#include <span>

namespace dsv4::reference {

/// One row of a window: where its channels begin (ratio 4: the caller has added the column offset of the
/// row's half of the window).
struct PoolRow {
  const float* kv;
  const float* score;  ///< APE included
};

/// pooled [d] of the rows in ascending order of position; rows below position 0 are left out by the caller.
/// Per channel: m = max; e = exp(score - m); den = den + e; acc = fma(e, kv, acc); pooled = acc / den.
void pool_window(std::span<const PoolRow> rows, std::int64_t d, float* pooled);

/// Axis pool f32_softmax_bf16_sum (section 17.3): w = bf16(e / den), products bf16(w * kv), added in f32 and
/// rounded to bf16 once.
void pool_window_bf16(std::span<const PoolRow> rows, std::int64_t d, float* pooled);

}  // namespace dsv4::reference
