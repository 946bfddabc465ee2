#include "oracle/dump_size.hpp"

#include <algorithm>

#include "model/tensor_shape.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

constexpr std::int64_t kDatasetOverhead = 1024;  // object header and attributes
constexpr int kDatasetsAStep = 16;               // batch tables and digests

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
  const LayerKind kind = config.layers[static_cast<std::size_t>(layer)];
  if (const auto width = row_width(config, kind, id)) return *width;
  switch (id) {
    case selected:
      return config.geometry.index_topk;
    case window_slots:
    case window_logical:
      return kWindow;
    case compressed_slots:
    case compressed_logical:
      return has_indexer(kind) ? config.geometry.index_topk : entries;
    default:
      return entries;
  }
}

std::int64_t step_bytes(const RunConfig& config, const StepPlan& step, const Selection& selection) {
  std::int64_t bytes = kDatasetOverhead * kDatasetsAStep;
  // Tables: two rows of at most 16 bytes for each page that is held, one for each that was given back.
  std::int64_t pages = 0;
  for (const LiveRequest& live : step.live) {
    for (const std::vector<std::int32_t>& table : *live.tables) pages += std::ssize(table);
  }
  bytes += 4 * kDatasetOverhead + 48 * pages;
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
