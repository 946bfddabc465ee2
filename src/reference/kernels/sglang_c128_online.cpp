#include "reference/kernels/sglang_c128_online.hpp"

#include <limits>

#include "reference/kernels/sglang_softmax.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::int64_t kChunk = 128;

SglangMerged load(std::span<const float> state, std::int64_t slot, std::int64_t d, std::int64_t c) {
  const float* row =
      state.subspan(static_cast<std::size_t>(slot * 3 * d), static_cast<std::size_t>(3 * d)).data();
  return {row[c], row[d + c], row[2 * d + c]};
}

void store(const SglangMerged& value, std::span<float> state, std::int64_t slot, std::int64_t d,
           std::int64_t c) {
  float* row = state.subspan(static_cast<std::size_t>(slot * 3 * d), static_cast<std::size_t>(3 * d)).data();
  row[c] = stored(value.max);
  row[d + c] = stored(value.sum);
  row[2 * d + c] = stored(value.mean);
}

/// `old` scaled by its weight is the fused product, `next` the rounded one.
SglangMerged join(const SglangMerged& old, float old_weight, float next_mean, float next_weight, float max) {
  const float total = ftz_add(old_weight, next_weight);
  const float product = ftz_fma(old.mean, old_weight, ftz_mul(next_mean, next_weight));
  return {max, total, ftz_mul(product, arith::hopper::rcp_ftz(total))};
}

SglangMerged append_token(const SglangMerged& old, float score, float kv) {
  const float max = device_max(old.max, score);
  const float old_weight = ftz_mul(old.sum, sglang_exp(ftz_sub(old.max, max)));
  const float new_weight = sglang_exp(ftz_sub(score, max));
  return join(old, old_weight, kv, new_weight, max);
}

SglangMerged append_segment(const SglangMerged& old, const SglangMerged& segment) {
  const float max = device_max(old.max, segment.max);
  const float old_weight = ftz_mul(old.sum, sglang_exp(ftz_sub(old.max, max)));
  const float new_weight = ftz_mul(segment.sum, sglang_exp(ftz_sub(segment.max, max)));
  return join(old, old_weight, segment.mean, new_weight, max);
}

/// Channel c of the segment of `plan` alone.
SglangMerged pool_segment(const SglangCompressPlan& plan, const float* input, const float* bias,
                          std::int64_t d, std::int64_t c) {
  const std::int64_t end = (std::int64_t{plan.seq_len} - 1) % kChunk + 1;
  const std::int64_t begin = end - plan.count;
  std::array<SglangPartial, kSglangWarps> parts;
  for (int w = 0; w < kSglangWarps; ++w) {
    float kv[kSglangRowsPerWarp];
    float score[kSglangRowsPerWarp];
    for (int i = 0; i < kSglangRowsPerWarp; ++i) {
      const std::int64_t j = w * kSglangRowsPerWarp + i;
      const bool present = j >= begin && j < end;
      kv[i] = 0.0F;
      score[i] = -std::numeric_limits<float>::max();
      if (!present) continue;
      const float* row = input + (std::int64_t{plan.ragged_id} - (end - 1 - j)) * 2 * d;
      kv[i] = row[c];
      score[i] = ftz_add(row[d + c], bias[j * d + c]);
    }
    parts[static_cast<std::size_t>(w)] = sglang_softmax8(score, kv);
  }
  return sglang_merge(parts);
}

SglangMerged pool(const SglangCompressPlan& plan, const float* input, const float* bias, std::int64_t d,
                  std::int64_t c, std::span<const float> state) {
  const SglangMerged segment = pool_segment(plan, input, bias, d, c);
  const std::int64_t slot = plan.page_current >= 0 ? plan.page_current : plan.page_before;
  const bool continues = (std::int64_t{plan.seq_len} - 1) % kChunk + 1 != plan.count;
  return continues && slot >= 0 ? append_segment(load(state, slot, d, c), segment) : segment;
}

}  // namespace

void sglang_c128_online_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                               std::int64_t d, std::span<float> state, float* pooled) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const SglangDecodePlan& plan = plans[i];
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t at = (std::int64_t{plan.seq_len} - 1) % kChunk;
    for (std::int64_t c = 0; c < d; ++c) {
      const float kv = input[row * 2 * d + c];
      const float score = ftz_add(input[row * 2 * d + d + c], bias[at * d + c]);
      const SglangMerged next = at == 0 ? SglangMerged{score, 1.0F, kv}
                                        : append_token(load(state, plan.page_before, d, c), score, kv);
      if (at == kChunk - 1) {
        pooled[row * d + c] = stored(next.mean);
      } else {
        store(next, state, plan.write_row, d, c);
      }
    }
  }
}

void sglang_c128_online_prefill(std::span<const SglangCompressPlan> closing,
                                std::span<const SglangCompressPlan> partial, const float* input,
                                const float* bias, std::int64_t d, std::span<float> state, float* pooled) {
  for (std::size_t i = 0; i < closing.size(); ++i) {
    if (closing[i].seq_len == kSglangInvalid) continue;
    for (std::int64_t c = 0; c < d; ++c) {
      pooled[static_cast<std::int64_t>(i) * d + c] = stored(pool(closing[i], input, bias, d, c, state).mean);
    }
  }
  for (const SglangCompressPlan& plan : partial) {
    if (plan.seq_len == kSglangInvalid) continue;
    for (std::int64_t c = 0; c < d; ++c) {
      store(pool(plan, input, bias, d, c, state), state, plan.page_before, d, c);
    }
  }
}

}  // namespace dsv4::kernels
