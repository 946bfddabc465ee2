#include <algorithm>

#include "arith/ue8m0.hpp"
#include "cli/kernels/stage_models.hpp"
#include "model/error.hpp"
#include "reference/kernels/deepgemm_fp8_einsum.hpp"
#include "reference/kernels/vllm_inv_rope_fp8_quant.hpp"
#include "reference/stage_context.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

constexpr std::int64_t kBlock = kernels::DeepgemmFp8Einsum::kBlock;

/// wo_a on quantised rows x [tokens, groups, r], then wo_b, which has no model.
void project(const KernelCall& call, const std::vector<std::uint8_t>& x, const std::vector<float>& x_scales) {
  const Geometry& geometry = call.geometry();
  const LayerWeights& weights = call.weights();
  if (weights.wo_a.format != Matrix::Format::fp8_block128)
    throw UsageError("--model-kernels: wo_a is stored in bf16, its kernel multiplies FP8 weights");
  std::vector<float> w_scales(weights.wo_a.scales.size());
  std::ranges::transform(weights.wo_a.scales, w_scales.begin(), arith::ue8m0_to_f32);
  kernels::DeepgemmFp8Einsum in;
  in.b = call.tokens();
  in.h = geometry.o_groups;
  in.r = std::int64_t{geometry.heads} / geometry.o_groups * kHeadDim;
  in.d = geometry.o_lora;
  in.x = x.data();
  in.x_scales = x_scales.data();
  in.w = weights.wo_a.codes.data();
  in.w_scales = w_scales.data();
  const std::int64_t columns = in.h * in.d;
  Tensor latent(DType::bfloat16, {call.tokens(), columns});
  kernels::deepgemm_fp8_einsum(in, latent.as<std::uint16_t>().data());

  const reference::QuantizedRows quantised =
      reference::quantize_rows(call.profile(), latent.as<std::uint16_t>().data(), call.tokens(), columns);
  Tensor codes(DType::float8_e4m3fn, {call.tokens(), columns});
  Tensor scales(DType::float8_e8m0fnu, {call.tokens(), columns / kBlock});
  std::ranges::copy(quantised.codes, codes.as<std::uint8_t>().begin());
  std::ranges::copy(quantised.scales, scales.as<std::uint8_t>().begin());
  const std::vector<std::uint16_t> out = bf16_product(call, weights.wo_b, latent);
  Tensor hidden_out(DType::bfloat16, {call.tokens(), geometry.dim});
  std::ranges::copy(out, hidden_out.as<std::uint16_t>().begin());
  call.publish(TensorId::o_latent, std::move(latent));
  call.publish(TensorId::o_latent_codes, std::move(codes));
  call.publish(TensorId::o_latent_scales, std::move(scales));
  call.publish(TensorId::hidden_out, std::move(hidden_out));
}

}  // namespace

void vllm_output(const KernelCall& call) {
  const Geometry& geometry = call.geometry();
  const std::int64_t tokens = call.tokens();
  const std::vector<float> angles = rotation_rows(call, row_positions(call));
  const std::vector<std::int64_t> numbers = counting(tokens);
  kernels::VllmInverseRope in;
  in.groups = geometry.o_groups;
  in.heads_per_group = geometry.heads / geometry.o_groups;
  in.padded_tokens = (tokens + 3) / 4 * 4;
  in.o = call.input(TensorId::attention_out).as<std::uint16_t>();
  in.positions = numbers;
  in.cos_sin = angles;
  kernels::VllmInverseRopeOutput rows = kernels::vllm_inv_rope_fp8_quant(in);
  Tensor rotated(DType::float32, {tokens, geometry.heads, kHeadDim});
  std::ranges::copy(rows.rotated, rotated.as<float>().begin());
  // [groups, tokens, r] and [groups, blocks, padded tokens] -> [tokens, groups, ..]
  const std::int64_t r = in.heads_per_group * kHeadDim;
  const std::int64_t blocks = r / kBlock;
  std::vector<std::uint8_t> x(rows.codes.size());
  std::vector<float> x_scales(static_cast<std::size_t>(tokens * in.groups * blocks));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t group = 0; group < in.groups; ++group) {
      std::copy_n(rows.codes.data() + (group * tokens + token) * r, r,
                  x.data() + (token * in.groups + group) * r);
      for (std::int64_t block = 0; block < blocks; ++block) {
        x_scales[static_cast<std::size_t>((token * in.groups + group) * blocks + block)] =
            rows.scales[static_cast<std::size_t>((group * blocks + block) * in.padded_tokens + token)];
      }
    }
  }
  call.publish(TensorId::o_rot, std::move(rotated));
  project(call, x, x_scales);
}

/// The rotation and the quantiser are the profile's: on bf16 rows the kernel's scales are the same.
void sglang_output(const KernelCall& call) {
  const Tensor& rotated = call.input(TensorId::o_rot);
  const reference::QuantizedRows rows = reference::quantize_rows(
      call.profile(), rotated.as<std::uint16_t>().data(), call.tokens(), rotated.row_elements());
  std::vector<float> scales(rows.scales.size());
  std::ranges::transform(rows.scales, scales.begin(), arith::ue8m0_to_f32);
  project(call, {rows.codes.begin(), rows.codes.end()}, scales);
}

}  // namespace dsv4::cli::kernel_stages
