#include <algorithm>

#include "reference/block_quantizer.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Section 9 backwards at the token's position, one rounding to bf16.
Tensor rotated_back(const StageContext& context) {
  const Tensor& out = context.input(TensorId::attention_out);
  const std::int64_t width = out.row_elements();
  Tensor rotated(DType::bfloat16, out.shape());
  const std::uint16_t* const from = out.as<std::uint16_t>().data();
  std::uint16_t* const rows = rotated.as<std::uint16_t>().data();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    std::copy_n(from + token * width, width, rows + token * width);
    if (context.padding(token)) continue;
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t at = token * width; at < (token + 1) * width; at += kHeadDim) {
      rope_rotate(rows + at + kNopeDim, angles, RopeDirection::inverse);
    }
  }
  return rotated;
}

/// The same without the rounding (axis out_rotation f32).
Tensor rotated_back_f32(const StageContext& context) {
  const Tensor& out = context.input(TensorId::attention_out);
  const std::int64_t width = out.row_elements();
  Tensor rotated(DType::float32, out.shape());
  float* const rows = rotated.as<float>().data();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    if (context.padding(token)) continue;
    widen_bf16(out.as<std::uint16_t>().data() + token * width, width, rows + token * width);
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t at = token * width; at < (token + 1) * width; at += kHeadDim) {
      rope_rotate(rows + at + kNopeDim, angles, RopeDirection::inverse);
    }
  }
  return rotated;
}

/// Group g: heads g * H / G .. through its own rows of wo_a; bf16 operands, or FP8 ones (axis wo_a).
void project_groups(const StageContext& context, const Tensor& rotated, std::uint16_t* latent) {
  const Geometry& geometry = context.geometry();
  const Matrix& weight = context.weights().wo_a;
  const std::int64_t row = std::int64_t{geometry.heads} * kHeadDim;
  const std::int64_t group_columns = row / geometry.o_groups;
  const std::int64_t group_rows = geometry.o_lora;
  const std::int64_t out_stride = std::int64_t{geometry.o_groups} * group_rows;
  QuantizedRows quantized;
  const bool fp8 = context.profile().get<WoA>() == WoA::fp8_1x128;
  if (rotated.dtype() == DType::float32) {
    quantized = quantize_rows(context.profile(), rotated.as<float>().data(), context.tokens(), row);
  } else if (fp8) {
    quantized = quantize_rows(context.profile(), rotated.as<std::uint16_t>().data(), context.tokens(), row);
  }
  for (std::int64_t group = 0; group < geometry.o_groups; ++group) {
    Activations input;
    if (fp8) {
      input.codes = quantized.codes.data() + group * group_columns;
      input.scales = quantized.scales.data() + group * group_columns / 128;
      input.stride = row;
      input.scale_stride = row / 128;
    } else {
      input.bf16 = rotated.as<std::uint16_t>().data() + group * group_columns;
      input.stride = row;
    }
    linear(weight, {group * group_rows, group_rows}, input, context.tokens(), latent + group * group_rows,
           out_stride);
  }
}

void publish_latent_codes(StageContext& context, const std::uint16_t* latent, std::int64_t columns) {
  if (!context.wanted(TensorId::o_latent_codes) && !context.wanted(TensorId::o_latent_scales)) return;
  const QuantizedRows quantized = quantize_rows(context.profile(), latent, context.tokens(), columns);
  Tensor codes(DType::float8_e4m3fn, {context.tokens(), columns});
  Tensor scales(DType::float8_e8m0fnu, {context.tokens(), columns / 128});
  std::ranges::copy(quantized.codes, codes.as<std::uint8_t>().begin());
  std::ranges::copy(quantized.scales, scales.as<std::uint8_t>().begin());
  context.publish(TensorId::o_latent_codes, std::move(codes));
  context.publish(TensorId::o_latent_scales, std::move(scales));
}

}  // namespace

void output_project(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const Matrix& wo_b = context.weights().wo_b;
  const std::int64_t tokens = context.tokens();
  const std::int64_t latent_columns = std::int64_t{geometry.o_groups} * geometry.o_lora;
  Tensor rotated = context.profile().get<OutRotation>() == OutRotation::f32 ? rotated_back_f32(context)
                                                                            : rotated_back(context);
  Tensor latent(DType::bfloat16, {tokens, latent_columns});
  Tensor hidden_out(DType::bfloat16, {tokens, geometry.dim});
  std::uint16_t* const latent_rows = latent.as<std::uint16_t>().data();
  project_groups(context, rotated, latent_rows);
  {
    const LinearInput input(context.profile(), latent_rows, tokens, latent_columns);
    linear(wo_b, all_outputs(wo_b), input.activations(), tokens, hidden_out.as<std::uint16_t>().data(),
           geometry.dim);
  }
  publish_latent_codes(context, latent_rows, latent_columns);
  context.publish(TensorId::o_rot, std::move(rotated));
  context.publish(TensorId::o_latent, std::move(latent));
  context.publish(TensorId::hidden_out, std::move(hidden_out));
}

}  // namespace dsv4::reference
