/// The softmax steps that SGLang's pooling kernels share (fast-math: subnormals flush). Contract: sglang.md
/// sections 3.2, 9.2, 10 and 11.
#pragma once

#include <array>

#include "arith/hopper/mufu.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

/// expf under fast-math: EX2(rn(t * log2 e)).
inline float sglang_exp(float t) {
  return arith::hopper::ex2_ftz(ftz_mul(t, kLog2E));
}

/// What a thread knows of its rows of a channel.
struct SglangPartial {
  float max;
  float sum;      ///< of exp(score - max)
  float product;  ///< of kv * exp(score - max), not divided
};

/// Eight rows of one channel, bias already added.
SglangPartial sglang_softmax8(const float* score, const float* kv);

/// A channel of a window whose eight-row parts 16 warps hold: maximum, sum of exponentials, weighted mean.
struct SglangMerged {
  float max;
  float sum;
  float mean;
};
inline constexpr int kSglangWarps = 16;
inline constexpr int kSglangRowsPerWarp = 8;

/// Over the 16 partial results, by shuffles at distances 8, 4, 2, 1: the maximum; r = EX2((max_w - max) log2
/// e); sum of rn(sum_w * r); then the sum of rn(product_w * rn(r * RCP(sum))).
SglangMerged sglang_merge(const std::array<SglangPartial, kSglangWarps>& parts);

}  // namespace dsv4::kernels
