#include "model/tensor_shape.hpp"

#include "model/layout.hpp"

namespace dsv4 {
namespace {

std::int64_t index_bytes(const RunConfig& config) {
  return layout::row_form(config.profile.get<IndexCache>()).row_bytes();
}

std::int64_t index_blocks(const RunConfig& config) {
  return config.profile.get<IndexCache>() == IndexCache::fp4 ? kIndexDim / layout::kIndexFp4Block : 1;
}

}  // namespace

std::optional<std::int64_t> row_width(const RunConfig& config, LayerKind kind, TensorId id) {
  using enum TensorId;
  const Geometry& g = config.geometry;
  const std::int64_t latent = std::int64_t{g.o_groups} * g.o_lora;
  switch (id) {
    case hidden:
    case hidden_codes:
    case hidden_out:
      return g.dim;
    case hidden_scales:
      return (g.dim + 127) / 128;
    case q_latent:
      return g.q_lora;
    case q_raw:
    case q_normed:
    case q:
    case attention_out:
    case o_rot:
      return std::int64_t{g.heads} * kHeadDim;
    case window_normed:
    case window_kv:
    case compress_entry:
    case compress_pooled:
      return kHeadDim;
    case window_codes:
    case compress_codes:
      return kNopeDim;
    case window_rope:
    case compress_rope:
      return kRopeDim;
    case window_scales:
    case compress_scales:
      return layout::kKvScales;
    case window_page_bytes:
    case compress_page_bytes:
      return layout::row_form(config.profile.get<KvCache>()).row_bytes();
    case compress_kv:
    case compress_score:
    case compress_state_kv:
    case compress_state_score:
    case compress_state_max:
    case compress_state_sum:
      return compressor_channels(kind, kHeadDim);
    case indexer_kv:
    case indexer_score_raw:
    case indexer_state_kv:
    case indexer_state_score:
      return compressor_channels(kind, kIndexDim);
    case indexer_pooled:
    case indexer_entry:
    case indexer_codes:
      return kIndexDim;
    case indexer_scales:
      return index_blocks(config);
    case indexer_page_bytes:
      return index_bytes(config);
    case query_entry:
    case query_codes:
      return std::int64_t{g.index_heads} * kIndexDim;
    case query_scales:
      return g.index_heads * index_blocks(config);
    case query_weights:
      return g.index_heads;
    case scores:
    case selected:
    case window_slots:
    case window_logical:
    case compressed_slots:
    case compressed_logical:
      return std::nullopt;
    case attention_lse:
      return g.heads;
    case o_latent:
    case o_latent_codes:
      return latent;
    case o_latent_scales:
      return latent / 128;
    default:
      return 1;
  }
}

}  // namespace dsv4
