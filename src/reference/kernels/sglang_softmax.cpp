#include "reference/kernels/sglang_softmax.hpp"

namespace dsv4::kernels {

SglangPartial sglang_softmax8(const float* score, const float* kv) {
  SglangPartial partial{score[0], 0.0F, 0.0F};
  for (int i = 1; i < kSglangRowsPerWarp; ++i) partial.max = device_max(partial.max, score[i]);
  for (int i = 0; i < kSglangRowsPerWarp; ++i) {
    const float e = sglang_exp(ftz_sub(score[i], partial.max));
    partial.product = ftz_fma(kv[i], e, partial.product);
    partial.sum = ftz_add(partial.sum, e);
  }
  return partial;
}

SglangMerged sglang_merge(const std::array<SglangPartial, kSglangWarps>& parts) {
  SglangMerged merged{parts[0].max, 0.0F, 0.0F};
  for (const SglangPartial& part : parts) merged.max = device_max(merged.max, part.max);
  std::array<float, kSglangWarps> factor;
  std::array<float, kSglangWarps> lanes;
  for (std::size_t w = 0; w < parts.size(); ++w) {
    factor[w] = sglang_exp(ftz_sub(parts[w].max, merged.max));
    lanes[w] = ftz_mul(parts[w].sum, factor[w]);
  }
  merged.sum = ftz_butterfly_sum(lanes, {8, 4, 2, 1});
  const float inverse = arith::hopper::rcp_ftz(merged.sum);
  for (std::size_t w = 0; w < parts.size(); ++w) {
    lanes[w] = ftz_mul(parts[w].product, ftz_mul(factor[w], inverse));
  }
  merged.mean = ftz_butterfly_sum(lanes, {8, 4, 2, 1});
  return merged;
}

}  // namespace dsv4::kernels
