/// output.project: inverse RoPE, grouped wo_a, FP8 quantisation, wo_b (docs/numerics.md 16).
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

void output_project(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const Geometry& g = engine.geometry();
  const std::int64_t tokens = engine.layout().tokens;
  const DeviceWeights& weights = engine.weights(call.layer);
  const DeviceTensor o_rot = engine.publish(call.layer, TensorId::o_rot, DType::bfloat16, {tokens, g.heads, kHeadDim});
  const RopeRows table = engine.token_rope(call.layer);
  rope(engine.input(call.layer, TensorId::attention_out).as<std::uint16_t>(), o_rot.as<std::uint16_t>(), tokens, g.heads,
       kHeadDim, table.cosines, table.sines, true, engine.stream());

  const std::int64_t latent = std::int64_t{g.o_groups} * g.o_lora;
  const std::int64_t row = std::int64_t{g.heads} * kHeadDim;
  const DeviceTensor o_latent = engine.publish(call.layer, TensorId::o_latent, DType::bfloat16, {tokens, latent});
  grouped_linear(widen_rows({nullptr, nullptr, o_rot.as<std::uint16_t>()}, tokens, row, engine.memory(), engine.stream()),
                 weights.wo_a, g.o_groups, {o_latent.as<std::uint16_t>(), nullptr, latent}, engine.memory(),
                 engine.stream());
  const DeviceTensor codes = engine.publish(call.layer, TensorId::o_latent_codes, DType::float8_e4m3fn, {tokens, latent});
  const DeviceTensor scales =
      engine.publish(call.layer, TensorId::o_latent_scales, DType::float8_e8m0fnu, {tokens, latent / 128});
  quantise_e4m3(o_latent.as<std::uint16_t>(), latent, tokens, static_cast<int>(latent), 128, codes.as<std::uint8_t>(),
                latent, scales.as<std::uint8_t>(), latent / 128, engine.stream());
  const DeviceTensor out = engine.publish(call.layer, TensorId::hidden_out, DType::bfloat16, {tokens, g.dim});
  linear(widen_rows({codes.as<std::uint8_t>(), scales.as<std::uint8_t>(), nullptr}, tokens, latent, engine.memory(),
                    engine.stream()),
         weights.wo_b, {out.as<std::uint16_t>(), nullptr, g.dim}, engine.memory(), engine.stream());
}

}  // namespace dsv4::gpu
