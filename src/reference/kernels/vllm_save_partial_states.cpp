#include "reference/kernels/vllm_save_partial_states.hpp"

#include <algorithm>
#include <cstddef>

#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

void vllm_save_partial_states(const VllmPartialStates& in, std::span<float> state) {
  for (std::size_t t = 0; t < in.slot_mapping.size(); ++t) {
    const std::int64_t slot = in.slot_mapping[t];
    if (slot < 0) continue;
    const float* kv = in.kv_score.data() + static_cast<std::int64_t>(t) * 2 * in.width;
    const float* score = kv + in.width;
    const float* ape = in.ape.data() + in.positions[t] % in.ratio * in.width;
    float* row = state.data() + slot * 2 * in.width;
    std::copy_n(kv, in.width, row);
    for (std::int64_t i = 0; i < in.width; ++i) row[in.width + i] = stored(score[i] + ape[i]);
  }
}

}  // namespace dsv4::kernels
