#include "reference/rms_norm.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {

void q_down(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const LayerWeights& weights = context.weights();
  const auto hidden = context.input(TensorId::hidden).as<std::uint16_t>();
  Tensor latent(DType::bfloat16, {context.tokens(), geometry.q_lora});
  const auto rows = latent.as<std::uint16_t>();
  const LinearInput input(context.profile(), hidden.data(), context.tokens(), geometry.dim);
  linear(weights.wq_a, all_outputs(weights.wq_a), input.activations(), context.tokens(), rows.data(),
         geometry.q_lora);
  const NormWeight order = context.profile().get<NormWeight>();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    std::uint16_t* row = rows.data() + token * geometry.q_lora;
    rms_norm(row, geometry.q_lora, weights.q_norm.data(), geometry.eps, order, row);
  }
  context.publish(TensorId::q_latent, std::move(latent));
}

}  // namespace dsv4::reference
