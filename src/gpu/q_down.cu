/// q.down: wq_a and q_norm (docs/numerics.md 11).
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

void q_down(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int rank = engine.geometry().q_lora;
  const DeviceWeights& weights = engine.weights(call.layer);
  const WideOperand x = widen_rows({engine.input(call.layer, TensorId::hidden_codes).as<std::uint8_t>(),
                                    engine.input(call.layer, TensorId::hidden_scales).as<std::uint8_t>(), nullptr},
                                   tokens, engine.geometry().dim, engine.memory(), engine.stream());
  auto* raw = engine.memory().get<std::uint16_t>("scratch/q_down", static_cast<std::size_t>(tokens) * rank);
  linear(x, weights.wq_a, {raw, nullptr, rank}, engine.memory(), engine.stream());
  const DeviceTensor latent = engine.publish(call.layer, TensorId::q_latent, DType::bfloat16, {tokens, rank});
  rms_norm(raw, weights.q_norm, latent.as<std::uint16_t>(), tokens, rank, engine.geometry().eps, engine.stream());
}

}  // namespace dsv4::gpu
