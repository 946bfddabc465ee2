#include "reference/kernels/sglang_c4.hpp"

#include <limits>

#include "reference/kernels/sglang_softmax.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::int64_t kRatio = 4;
constexpr int kRows = 8;

/// A window of which the first `from_state` rows lie in the state and the others end at `last`.
struct Window {
  bool first_entry;
  std::int64_t from_state;
  std::int64_t page_before;
  std::int64_t page_current;
  const float* last;  ///< input row of the closing token
};

void pool(const Window& window, const float* bias, std::int64_t d, const SglangState& state, float* pooled) {
  for (std::int64_t c = 0; c < d; ++c) {
    float kv[kRows];
    float score[kRows];
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t kv_column = (i < kRatio ? 0 : d) + c;
      const std::int64_t score_column = 2 * d + kv_column;
      if (window.first_entry && i < kRatio) {
        kv[i] = 0.0F;
        score[i] = state.passed(-std::numeric_limits<float>::max());
      } else if (i < window.from_state) {
        const std::int64_t row =
            (i < kRatio ? window.page_before : window.page_current) * kRatio + i % kRatio;
        kv[i] = state.read(row, kv_column);
        score[i] = state.read(row, score_column);
      } else {
        const float* row = window.last - (kRows - 1 - i) * state.width;
        kv[i] = row[kv_column];
        score[i] = row[score_column];
      }
      score[i] = ftz_add(score[i], bias[i * d + c]);
    }
    const SglangPartial partial = sglang_softmax8(score, kv);
    pooled[c] = stored(ftz_mul(partial.product, arith::hopper::rcp_ftz(partial.sum)));
  }
}

}  // namespace

void sglang_c4_decode(std::span<const SglangDecodePlan> plans, const float* input, const float* bias,
                      std::int64_t d, const SglangState& state, float* pooled) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const SglangDecodePlan& plan = plans[i];
    const auto row = static_cast<std::int64_t>(i);
    state.write(plan.write_row, input + row * state.width);
    if (plan.seq_len % kRatio != 0) continue;
    pool({plan.seq_len == kRatio, kRows, plan.page_before, plan.page_current, nullptr}, bias, d, state,
         pooled + row * d);
  }
}

void sglang_c4_prefill(std::span<const SglangCompressPlan> plans, std::span<const SglangWritePlan> writes,
                       const float* input, const float* bias, std::int64_t d, const SglangState& state,
                       float* pooled) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const SglangCompressPlan& plan = plans[i];
    if (plan.seq_len == kSglangInvalid) continue;
    pool({plan.seq_len == kRatio, plan.count, plan.page_before, plan.page_current,
          input + std::int64_t{plan.ragged_id} * state.width},
         bias, d, state, pooled + static_cast<std::int64_t>(i) * d);
  }
  sglang_write_state(writes, input, state);
}

}  // namespace dsv4::kernels
