#include "reference/kernels/vllm_qk_rmsnorm.hpp"

#include <cstddef>
#include <vector>

#include "arith/hopper/mufu.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

void vllm_rmsnorm_row(const VllmRmsNorm& norm, const std::uint16_t* x, std::uint16_t* y) {
  const std::size_t size = norm.weight.size();
  std::vector<float> row(size);
  for (std::size_t i = 0; i < size; ++i) row[i] = arith::bf16_to_f32(x[i]);
  const float inverse_size = arith::hopper::rcp_ftz(static_cast<float>(size));
  const float mean = arith::fma(triton_square_sum(row, norm.ownership), inverse_size, norm.eps);
  const float r = arith::hopper::rsqrt_ftz(mean);
  for (std::size_t i = 0; i < size; ++i) y[i] = stored_bf16(row[i] * r * norm.weight[i]);
}

void vllm_qk_rmsnorm(const VllmRmsNorm& q, const VllmRmsNorm& kv, std::span<const std::uint16_t> qkv,
                     std::span<std::uint16_t> q_out, std::span<std::uint16_t> kv_out) {
  const std::size_t q_size = q.weight.size();
  const std::size_t kv_size = kv.weight.size();
  const std::size_t tokens = qkv.size() / (q_size + kv_size);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::uint16_t* row = qkv.data() + t * (q_size + kv_size);
    vllm_rmsnorm_row(q, row, q_out.data() + t * q_size);
    vllm_rmsnorm_row(kv, row + q_size, kv_out.data() + t * kv_size);
  }
}

}  // namespace dsv4::kernels
