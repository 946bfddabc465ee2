/// q.down: wq_a, bf16, RMS norm with q_norm, bf16 (docs/numerics.md 11).
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void q_down(Layer& layer) {
  Balls latent = layer.linear_of_input(layer.weights->wq_a);
  latent.round_to_bf16(layer.exact());
  latent = rms_norm(latent, bf16_values(layer.weights->q_norm), static_cast<double>(layer.geometry().eps),
                    HeadNorm::f32, layer.rounding<NormWeight>());
  layer.publish_bf16(TensorId::q_latent, {layer.geometry().q_lora}, std::move(latent));
}

}  // namespace dsv4::wide
