/// q.up: wq_b on the quantised latent, per-head RMS norm, RoPE (docs/numerics.md 11, 18).
#include "gpu/cuda_engine.cuh"
#include "gpu/query_latent.cuh"

namespace dsv4::gpu {

WideOperand quantised_latent(CudaEngine& engine, int layer) {
  const std::int64_t tokens = engine.layout().tokens;
  const int rank = engine.geometry().q_lora;
  auto* codes = engine.memory().get<std::uint8_t>("scratch/latent_codes", static_cast<std::size_t>(tokens) * rank);
  auto* scales =
      engine.memory().get<std::uint8_t>("scratch/latent_scales", static_cast<std::size_t>(tokens) * (rank / 128));
  quantise_e4m3(engine.input(layer, TensorId::q_latent).as<std::uint16_t>(), rank, tokens, rank, 128, codes, rank,
                scales, rank / 128, engine.stream());
  return widen_rows({codes, scales, nullptr}, tokens, rank, engine.memory(), engine.stream());
}

void q_up(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int heads = engine.geometry().heads;
  const std::vector<std::int64_t> shape{tokens, heads, kHeadDim};
  const DeviceTensor raw = engine.publish(call.layer, TensorId::q_raw, DType::bfloat16, shape);
  const std::int64_t width = std::int64_t{heads} * kHeadDim;
  linear(quantised_latent(engine, call.layer), engine.weights(call.layer).wq_b,
         {raw.as<std::uint16_t>(), nullptr, width}, engine.memory(), engine.stream());
  const DeviceTensor normed = engine.publish(call.layer, TensorId::q_normed, DType::bfloat16, shape);
  if (engine.profile().get<HeadNorm>() == HeadNorm::bf16) {
    head_norm_bf16(raw.as<std::uint16_t>(), normed.as<std::uint16_t>(), tokens * heads, engine.geometry().eps,
                   engine.stream());
  } else {
    rms_norm(raw.as<std::uint16_t>(), nullptr, normed.as<std::uint16_t>(), tokens * heads, kHeadDim,
             engine.geometry().eps, engine.stream());
  }
  const DeviceTensor q = engine.publish(call.layer, TensorId::q, DType::bfloat16, shape);
  const RopeRows table = engine.token_rope(call.layer);
  rope(normed.as<std::uint16_t>(), q.as<std::uint16_t>(), tokens, heads, kHeadDim, table.cosines, table.sines, false,
       engine.stream());
}

}  // namespace dsv4::gpu
