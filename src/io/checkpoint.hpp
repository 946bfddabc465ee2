/// The tensors of one attention layer in a checkpoint: short names, shapes and forms, written down once for
/// reader and writer (docs/dump-format.md, weights). Internal to src/io.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/inputs.hpp"

namespace dsv4::io {

/// Calls `visit` for every weight of a layer of this kind. `Layer` is LayerWeights, const or not; `visit` has
///   matrix(name, Matrix&, rows, columns, fp8)   fp8: stored as e4m3 with block scales
///   norm(name, vector of bf16 bits, n)
///   real(name, vector of float, shape)
template <class Layer, class Visitor>
void visit_weights(Layer& layer, const Geometry& g, LayerKind kind, Visitor&& visit) {
  const std::int64_t heads_dim = std::int64_t{g.heads} * kHeadDim;
  visit.matrix("wq_a", layer.wq_a, g.q_lora, g.dim, true);
  visit.norm("q_norm", layer.q_norm, g.q_lora);
  visit.matrix("wq_b", layer.wq_b, heads_dim, g.q_lora, true);
  visit.matrix("wkv", layer.wkv, kHeadDim, g.dim, true);
  visit.norm("kv_norm", layer.kv_norm, kHeadDim);
  visit.real("attn_sink", layer.attn_sink, {g.heads});
  const std::int64_t latent = std::int64_t{g.o_groups} * g.o_lora;
  visit.matrix("wo_a", layer.wo_a, latent, heads_dim / g.o_groups, true);
  visit.matrix("wo_b", layer.wo_b, g.dim, latent, true);
  const auto compressor = [&](const std::string& prefix, auto& weights, int d) {
    const std::int64_t channels = compressor_channels(kind, d);
    visit.matrix(prefix + "wkv", weights.wkv, channels, g.dim, false);
    visit.matrix(prefix + "wgate", weights.wgate, channels, g.dim, false);
    visit.real(prefix + "ape", weights.ape, {ratio(kind), channels});
    visit.norm(prefix + "norm", weights.norm, d);
  };
  if (has_compressor(kind)) compressor("compressor.", layer.compressor, kHeadDim);
  if (has_indexer(kind)) {
    visit.matrix("indexer.wq_b", layer.indexer_wq_b, std::int64_t{g.index_heads} * kIndexDim, g.q_lora, true);
    visit.matrix("indexer.weights_proj", layer.indexer_weights_proj, g.index_heads, g.dim, false);
    compressor("indexer.compressor.", layer.indexer_compressor, kIndexDim);
  }
}

/// "layers.3.attn.wq_a.weight"; `suffix` is ".weight", ".scale" or "" (ape, attn_sink).
inline std::string checkpoint_name(int layer, std::string_view short_name, std::string_view suffix) {
  return "layers." + std::to_string(layer) + ".attn." + std::string(short_name) + std::string(suffix);
}

/// Blocks of 128 that cover n.
constexpr std::int64_t blocks_of_128(std::int64_t n) {
  return (n + 127) / 128;
}

}  // namespace dsv4::io
