#include "reference/kernels/sglang_c128.hpp"

#include "reference/kernels/sglang_softmax.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::int64_t kRatio = 128;

/// Window rows [0, from_state) lie in state page `page`; the others end at `last`.
void pool(std::int64_t from_state, std::int64_t page, const float* last, const float* bias, std::int64_t d,
          const SglangState& state, float* pooled) {
  for (std::int64_t c = 0; c < d; ++c) {
    std::array<SglangPartial, kSglangWarps> parts;
    for (int w = 0; w < kSglangWarps; ++w) {
      float kv[kSglangRowsPerWarp];
      float score[kSglangRowsPerWarp];
      for (int i = 0; i < kSglangRowsPerWarp; ++i) {
        const std::int64_t j = w * kSglangRowsPerWarp + i;
        float raw = 0;
        if (j < from_state) {
          kv[i] = state.read(page * kRatio + j, c);
          raw = state.read(page * kRatio + j, d + c);
        } else {
          const float* row = last - (kRatio - 1 - j) * state.width;
          kv[i] = row[c];
          raw = row[d + c];
        }
        score[i] = ftz_add(raw, bias[j * d + c]);
      }
      parts[static_cast<std::size_t>(w)] = sglang_softmax8(score, kv);
    }
    pooled[c] = stored(sglang_merge(parts).mean);
  }
}

}  // namespace

void sglang_c128_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                        std::int64_t d, const SglangState& state, float* pooled) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const SglangDecodePlan& plan = plans[i];
    const auto row = static_cast<std::int64_t>(i);
    state.write(plan.write_row, input + row * state.width);
    if (plan.write_row % kRatio != kRatio - 1) continue;
    pool(kRatio, plan.page_current, nullptr, bias, d, state, pooled + row * d);
  }
}

void sglang_c128_prefill(std::span<const SglangCompressPlan> plans, std::span<const SglangWritePlan> writes,
                         const float* input, const float* bias, std::int64_t d, const SglangState& state,
                         float* pooled) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const SglangCompressPlan& plan = plans[i];
    if (plan.seq_len == kSglangInvalid) continue;
    pool(plan.count, plan.page_current, input + std::int64_t{plan.ragged_id} * state.width, bias, d, state,
         pooled + static_cast<std::int64_t>(i) * d);
  }
  sglang_write_state(writes, input, state);
}

}  // namespace dsv4::kernels
