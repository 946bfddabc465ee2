/// vLLM `_fused_q_kv_rmsnorm_kernel` (Triton, commit 5ac2684976ee; four warps): RMS norm of the query latent
/// and of the kv row. Contract: contracts/vllm.md section 5.
///
/// bf16 in, float32 inside, one rounding to bf16. A thread owns 8 consecutive columns of every 1024. Mean and
/// eps are one fma(sum, RCP(size), eps): with a size that is no power of two RCP is inexact, and shows.
#pragma once

#include <cstdint>
#include <span>

#include "reference/kernels/block_sum.hpp"

namespace dsv4::kernels {

struct VllmRmsNorm {
  std::span<const float> weight;  // [size], widened where it is bf16
  float eps = 0;
  RowOwnership ownership = {4, 8};
};

/// One row of `norm.weight.size()` bf16: rn(rn(x * rsqrt) * weight), rounded to bf16.
void vllm_rmsnorm_row(const VllmRmsNorm& norm, const std::uint16_t* x, std::uint16_t* y);

/// `qkv` bf16 [tokens, q size + kv size] -> `q_out` [tokens, q size], `kv_out` [tokens, kv size].
void vllm_qk_rmsnorm(const VllmRmsNorm& q, const VllmRmsNorm& kv, std::span<const std::uint16_t> qkv,
                     std::span<std::uint16_t> q_out, std::span<std::uint16_t> kv_out);

}  // namespace dsv4::kernels
