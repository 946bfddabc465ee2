/// q.up: wq_b, bf16, RMS norm of each head, bf16, RoPE, bf16 (docs/numerics.md 11; head_norm bf16: 18).
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void q_up(Layer& layer) {
  const std::int64_t heads = layer.geometry().heads;
  const std::vector<std::int64_t> tail{heads, kHeadDim};
  const auto by_head = [&](Balls& balls) { balls.reshape(std::ssize(layer.rows()) * heads, kHeadDim); };

  Balls q = layer.linear(Balls(layer.input(TensorId::q_latent)), layer.weights->wq_b);
  q = layer.publish_bf16(TensorId::q_raw, tail, std::move(q));
  by_head(q);
  q = rms_norm(q, {}, static_cast<double>(layer.geometry().eps), layer.rounding<HeadNorm>());
  q = layer.publish_row(TensorId::q_normed, tail, std::move(q),
                        layer.rounding<QRopeInput>() == QRopeInput::bf16);
  by_head(q);
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const Rotation rotation = layer.rope.at(layer.position(i));
    for (std::int64_t head = 0; head < heads; ++head) {
      rotate(q, static_cast<Eigen::Index>(i) * heads + head, kNopeDim, rotation, false);
    }
  }
  layer.publish_bf16(TensorId::q, tail, std::move(q));
}

}  // namespace dsv4::wide
