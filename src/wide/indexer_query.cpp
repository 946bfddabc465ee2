/// indexer.query: wq_b, RoPE, Hadamard and quantisation of the index query; head weights (docs/numerics.md
/// 13, 18).
#include <cmath>

#include "model/layout.hpp"
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void indexer_query(Layer& layer) {
  const std::int64_t heads = layer.geometry().index_heads;
  const std::int64_t tokens = std::ssize(layer.rows());
  const bool exact = layer.exact();
  const bool fp4 = layer.axis<IndexCache>() == IndexCache::fp4;

  const bool rounded = layer.rounding<IndexRow>() != IndexRow::f32;
  const bool plain = !exact && layout::plain(layer.axis<IndexCache>());

  Balls q = layer.linear(Balls(layer.input(TensorId::q_latent)), layer.weights->indexer_wq_b);
  q.round_to_bf16(exact);
  q.reshape(tokens * heads, kIndexDim);
  for (std::int64_t i = 0; i < tokens; ++i) {
    const Rotation rotation = layer.rope.at(layer.position(static_cast<std::size_t>(i)));
    for (std::int64_t head = 0; head < heads; ++head) {
      rotate(q, i * heads + head, kIndexDim - kRopeDim, rotation, false);
    }
  }
  if (layer.axis<IndexRotation>() == IndexRotation::both) {
    q.round_to_bf16(exact || !rounded);
    hadamard(q, exact);
  }
  q = layer.publish_row(TensorId::query_entry, {heads, kIndexDim}, std::move(q), rounded);
  q.reshape(tokens * heads, kIndexDim);

  Balls weights = product(Balls(layer.input(TensorId::hidden)), layer.weights->indexer_weights_proj);
  weights.round_to_bf16(exact);
  const double root = 1 / std::sqrt(static_cast<double>(kIndexDim * heads));
  const double factor = exact ? root : static_cast<double>(static_cast<float>(root));
  const bool bf16_weights = layer.axis<IndexRound>() == IndexRound::bf16;
  if (exact) {
    q.reshape(tokens, heads * kIndexDim);
    layer.publish_copy(TensorId::query_codes, {heads, kIndexDim}, q.value);
    weights.value *= factor;
    layer.publish_copy(TensorId::query_weights, {heads}, weights.value);
    return;
  }
  if (plain) {
    layer.publish_row(TensorId::query_codes, {heads, kIndexDim}, std::move(q), rounded);
    for (Eigen::Index i = 0; i < weights.value.size(); ++i) {
      const Eigen::Index row = i / heads;
      weights.set(row, i % heads, stepped(weights.at(row, i % heads) * factor));
    }
    layer.publish_f32(TensorId::query_weights, {heads}, weights);
    return;
  }
  Quantised codes = quantise(q, kIndexDim, index_format(layer.config.profile));
  layer.publish_codes(TensorId::query_codes, TensorId::query_scales, {heads, kIndexDim},
                      {heads, codes.blocks}, codes, fp4, !fp4);
  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t head = 0; head < heads; ++head) {
      Ball w = stepped(weights.at(i, head) * factor);
      if (!fp4) w = stepped(w * codes.scale.at(i * heads + head, 0));  // FP8: one scale a head, folded in
      weights.set(i, head, w);
    }
  }
  weights.round_to_bf16(!bf16_weights);
  layer.publish_f32(TensorId::query_weights, {heads}, weights);
}

}  // namespace dsv4::wide
