/// output.project: inverse RoPE, bf16, grouped wo_a, bf16, FP8, wo_b, bf16 (docs/numerics.md 16).
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void output_project(Layer& layer) {
  const Geometry& geometry = layer.geometry();
  const std::int64_t heads = geometry.heads;
  const std::int64_t group_width = heads / geometry.o_groups * kHeadDim;
  const std::int64_t latent_width = std::int64_t{geometry.o_groups} * geometry.o_lora;

  Balls out(layer.input(TensorId::attention_out));
  out.reshape(std::ssize(layer.rows()) * heads, kHeadDim);
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const Rotation rotation = layer.rope.at(layer.position(i));
    for (std::int64_t head = 0; head < heads; ++head) {
      rotate(out, static_cast<Eigen::Index>(i) * heads + head, kNopeDim, rotation, true);
    }
  }
  out = layer.publish_row(TensorId::o_rot, {heads, kHeadDim}, std::move(out),
                          layer.rounding<OutRotation>() == OutRotation::bf16);
  const bool fp8 = layer.rounding<WoA>() == WoA::fp8_1x128;
  if (fp8) out = quantise(out, out.columns(), layer.activation_format()).dequantised;

  Balls latent(out.rows(), latent_width);
  for (int group = 0; group < geometry.o_groups; ++group) {
    Balls heads_of_group(out.rows(), group_width);
    heads_of_group.value = out.value.middleCols(group * group_width, group_width);
    heads_of_group.radius = out.radius.middleCols(group * group_width, group_width);
    const std::int64_t first = std::int64_t{group} * geometry.o_lora;
    const Balls part =
        product(heads_of_group, layer.weights->wo_a, first, geometry.o_lora, !layer.exact() && !fp8);
    latent.value.middleCols(first, geometry.o_lora) = part.value;
    latent.radius.middleCols(first, geometry.o_lora) = part.radius;
  }
  latent = layer.publish_bf16(TensorId::o_latent, {latent_width}, std::move(latent));
  if (!layer.exact()) {
    Quantised activations = quantise(latent, latent_width, layer.activation_format());
    layer.publish_codes(TensorId::o_latent_codes, TensorId::o_latent_scales, {latent_width},
                        {activations.blocks}, activations, false, false);
    if (layer.axis<Linear>() == Linear::fp8_1x128) latent = std::move(activations.dequantised);
  }
  const bool bf16 = layer.rounding<Linear>() == Linear::bf16;
  layer.publish_bf16(TensorId::hidden_out, {geometry.dim},
                     product(latent, layer.weights->wo_b, 0, layer.weights->wo_b.rows, bf16));
}

}  // namespace dsv4::wide
