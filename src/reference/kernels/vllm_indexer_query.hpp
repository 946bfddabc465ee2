/// vLLM's indexer query in Triton (commit 5ac2684976ee): `_fused_indexer_q_rope_quant_kernel` and
/// `_fused_indexer_q_rope_mxfp4_kernel`. Contract: contracts/vllm.md section 10.
///
/// A row is one head of one token: 128 bf16, the last 64 rotated by the token's angle and rounded to bf16,
/// then quantised; the head's weight is scaled in float32, products left to right.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/kernels/rope_rotation.hpp"

namespace dsv4::kernels {

inline constexpr int kVllmIndexDim = 128;

struct VllmIndexerQuery {
  std::int64_t heads = 0;
  std::span<const std::uint16_t> q;         // bf16 [tokens, heads, 128]
  std::span<const std::int64_t> positions;  // [tokens]
  std::span<const float> cos_sin;           // [positions, 64]
  std::span<const float> weights;           // [tokens, heads], widened where they are bf16
  float softmax_scale = 0;
  float head_scale = 0;
  Rotate rotate = rotate_fused_even;
};

struct VllmIndexerQueryFp8 {
  std::vector<std::uint8_t> codes;  // e4m3 [tokens, heads, 128]
  std::vector<float> weights;       // ((weight * block scale) * softmax_scale) * head_scale
  // Held between the steps, not stored by the kernel.
  std::vector<float> scales;           // [tokens, heads]
  std::vector<std::uint16_t> rotated;  // bf16 [tokens, heads, 128]: what is quantised
};
/// One block of 128; IEEE division by 448 and by the scale.
VllmIndexerQueryFp8 vllm_indexer_query_fp8(const VllmIndexerQuery& in);

struct VllmIndexerQueryMxfp4 {
  std::vector<std::uint8_t> codes;   // e2m1 pairs [tokens, heads, 64]
  std::vector<std::uint8_t> scales;  // ue8m0 [tokens, heads, 4]
  std::vector<float> weights;        // (weight * softmax_scale) * head_scale
  std::vector<std::uint16_t> rotated;  // bf16 [tokens, heads, 128]: what is quantised
};
/// Blocks of 32; times 1/6, then the inverse of the scale by div.full.
VllmIndexerQueryMxfp4 vllm_indexer_query_mxfp4(const VllmIndexerQuery& in);

}  // namespace dsv4::kernels
