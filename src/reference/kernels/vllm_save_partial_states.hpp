/// vLLM `_save_partial_states_kernel` (Triton, commit 5ac2684976ee): rows of compressor state.
/// contracts/vllm.md section 8.
///
/// A state row of 2 * width floats is kv | score + ape. One float32 addition is all the arithmetic.
#pragma once

#include <cstdint>
#include <span>

namespace dsv4::kernels {

struct VllmPartialStates {
  std::int64_t width = 0;  // of kv and of score: head width, twice that where windows overlap
  std::int64_t ratio = 0;
  std::span<const float> kv_score;             // [tokens, 2 * width]: kv | score
  std::span<const float> ape;                  // [ratio, width]
  std::span<const std::int64_t> positions;     // [tokens]
  std::span<const std::int64_t> slot_mapping;  // [tokens]; negative: nothing is written
};

/// `state` [slots, 2 * width]: pages lie one after the other, so that a slot is a row.
void vllm_save_partial_states(const VllmPartialStates& in, std::span<float> state);

}  // namespace dsv4::kernels
