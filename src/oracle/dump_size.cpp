#include "oracle/dump_size.hpp"

#include <algorithm>

#include "model/layout.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

constexpr std::int64_t kDatasetOverhead = 1024;  // object header and attributes
constexpr int kDatasetsAStep = 16;               // batch tables and digests

std::int64_t index_bytes(const RunConfig& config) {
  return config.profile.get<IndexCache>() == IndexCache::fp4 ? layout::kIndexFp4RowBytes
                                                             : layout::kIndexFp8RowBytes;
}

std::int64_t index_blocks(const RunConfig& config) {
  return config.profile.get<IndexCache>() == IndexCache::fp4 ? kIndexDim / layout::kIndexFp4Block : 1;
}

/// Rows of a tensor's first axis in a step.
std::int64_t rows_of(const StepPlan& step, LayerKind kind, const TensorInfo& tensor) {
  const auto tokens = static_cast<std::int64_t>(step.rows.size());
  if (tensor.dims.starts_with("token")) return tokens;
  std::int64_t rows = 0;
  for (const RequestStep& request : step.requests) {
    if (tensor.dims.starts_with("entry")) {
      rows += request.end / std::max(1, ratio(kind)) - request.begin / std::max(1, ratio(kind));
    } else {
      rows += std::min<std::int64_t>(request.row_count, request.verify ? request.row_count : ratio(kind) + 4);
    }
  }
  return rows;
}

}  // namespace

std::int64_t row_elements(const RunConfig& config, int layer, TensorId id, std::int64_t entries) {
  using enum TensorId;
  const Geometry& g = config.geometry;
  const LayerKind kind = config.layers[static_cast<std::size_t>(layer)];
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
      return layout::kKvRowBytes;
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
      return entries;
    case selected:
      return g.index_topk;
    case window_slots:
    case window_logical:
      return kWindow;
    case compressed_slots:
    case compressed_logical:
      return has_indexer(kind) ? g.index_topk : entries;
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

std::int64_t step_bytes(const RunConfig& config, const StepPlan& step, const Selection& selection) {
  std::int64_t bytes = kDatasetOverhead * kDatasetsAStep;
  std::int32_t end = 0;
  for (const RequestStep& request : step.requests) end = std::max(end, request.end);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const LayerKind kind = config.layers[layer];
    const auto stages = execution_order(kind, step.kind == StepKind::restore);
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (step.rows.empty() || !selection.has_tensor(tensor.id) ||
          std::ranges::find(stages, tensor.stage) == stages.end()) {
        continue;
      }
      bytes += kDatasetOverhead +
               rows_of(step, kind, tensor) * static_cast<std::int64_t>(size_bytes(tensor.dtype)) *
                   row_elements(config, static_cast<int>(layer), tensor.id, live_entries(kind, end));
    }
  }
  if (selection.snapshots) bytes += cache_bytes(config);
  return bytes;
}

std::int64_t dump_bytes(const RunPlan& plan, const Selection& selection) {
  std::int64_t bytes = 0;
  for (const StepPlan& step : plan.steps) {
    if (selection.has_step(step.index)) bytes += step_bytes(plan.config, step, selection);
  }
  return bytes;
}

}  // namespace dsv4::oracle
