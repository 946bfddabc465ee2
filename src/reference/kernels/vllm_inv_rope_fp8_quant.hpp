/// vLLM `_fused_inv_rope_fp8_quant_per_head` (Triton, commit 5ac2684976ee): inverse RoPE of the attention
/// output and its FP8 quantisation for the grouped output projection. Contract: contracts/vllm.md section 18.
///
/// The last 64 of a head's 512 columns are rotated back in float32 and not rounded to bf16. Blocks of 128:
/// the scale from rn(max(amax, 1e-10) * 1/448), codes by div.full, clamped, converted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/kernels/rope_rotation.hpp"

namespace dsv4::kernels {

struct VllmInverseRope {
  std::int64_t groups = 0;
  std::int64_t heads_per_group = 0;
  std::int64_t padded_tokens = 0;           // rows of the scale buffer: tokens rounded up to 4
  std::span<const std::uint16_t> o;         // bf16 [tokens, groups * heads_per_group, 512]
  std::span<const std::int64_t> positions;  // [tokens]
  std::span<const float> cos_sin;           // [positions, 64]
  Rotate rotate = rotate_back_fused_cosine;
};

/// Both forms of the scales; a launch writes one of them. Padding rows are zero.
struct VllmInverseRopeOutput {
  std::vector<std::uint8_t> codes;           // e4m3 [groups, tokens, heads_per_group * 512]
  std::vector<float> scales;                 // [groups, heads_per_group * 4, padded_tokens]
  std::vector<std::uint32_t> packed_scales;  // [groups, heads_per_group, padded_tokens], byte j of block j
  std::vector<float> rotated;                // [tokens, groups * heads_per_group, 512]: what is quantised
};

VllmInverseRopeOutput vllm_inv_rope_fp8_quant(const VllmInverseRope& in);

}  // namespace dsv4::kernels
