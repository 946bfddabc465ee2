/// vLLM `fusedDeepseekV4QNormRopeKVRopeQuantInsertKernel` (CUDA C++, commit 5ac2684976ee; nvcc 13.0.88
/// without fast-math): norm and RoPE of query heads, RoPE and FP8 insert of the kv row. Contract:
/// contracts/vllm.md section 6. Both grid variants compute the same bits.
///
/// A warp owns a row of 512; lane l columns 16 l .. 16 l + 15.
#pragma once

#include <cstdint>
#include <span>

#include "reference/kernels/page_layout.hpp"
#include "reference/kernels/rope_rotation.hpp"

namespace dsv4::kernels {

/// 1 / root mean square of a row of 512: a lane's chain of fma(x, x, chain) from zero, the butterfly,
/// fma(sum, 2^-9, eps), rsqrt with subnormals scaled.
float vllm_query_scale(std::span<const float> row, float eps);

struct VllmQueryAndKv {
  std::int64_t heads = 0;
  std::int64_t padded_heads = 0;
  std::span<const std::uint16_t> q;            // bf16 [tokens, heads, 512]
  std::span<const std::uint16_t> kv;           // bf16 [tokens, 512]
  std::span<const std::int64_t> positions;     // [tokens]
  std::span<const std::int64_t> slot_mapping;  // [tokens that insert]; negative: nothing is written
  std::span<const float> cos_sin;              // [positions, 64]
  float eps = 0;
  float (*query_scale)(std::span<const float> row, float eps) = vllm_query_scale;
  Rotate rotate = rotate_fused_even;
};

/// `q_out` bf16 [tokens, padded_heads, 512]: no norm weight, one rounding after the rotation; heads past the
/// live ones are zero.
/// `cache`: the kv row rotated, all of it rounded to bf16, columns 0..447 in e4m3 blocks of 64 (IEEE division
/// by 448, times the inverse scale), the rest as bf16.
void vllm_qnorm_rope_kv_insert(const VllmQueryAndKv& in, const PageLayout& pages,
                               std::span<std::uint16_t> q_out, std::span<std::uint8_t> cache);

}  // namespace dsv4::kernels
