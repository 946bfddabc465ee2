#include "cli/bench_work.hpp"

#include <algorithm>

#include "model/layout.hpp"

namespace dsv4::cli {
namespace {

/// kv and score of a channel: read, published and written to the state.
constexpr double kStateBytes = 3 * 8;

/// Sums over the rows of a step.
struct Sums {
  double tokens = 0;
  double visible = 0;  ///< compressed entries that each token sees
  double keys = 0;     ///< keys that each token attends to
  double attended = 0; ///< compressed ones of them
  double width = 0;    ///< most compressed keys of a token: columns of the published lists
  double closed = 0;   ///< entries finished
  double state_rows = 0;
};

Sums sums_of(const RunConfig& config, const StepPlan& step, LayerKind kind) {
  Sums sums;
  for (const RequestStep& request : step.requests) {
    for (std::int32_t p = request.begin; p < request.end; ++p) {
      const double visible = live_entries(kind, p + 1);
      const double attended =
          has_indexer(kind) ? std::min<double>(visible, config.geometry.index_topk) : visible;
      sums.tokens += 1;
      sums.visible += visible;
      sums.keys += attended + std::min(p + 1, kWindow);
      sums.attended += attended;
      sums.width = std::max(sums.width, attended);
      if (has_compressor(kind) && (p + 1) % ratio(kind) == 0) sums.closed += 1;
      if (has_compressor(kind) && p >= first_live_state(kind, request.end)) sums.state_rows += 1;
    }
  }
  return sums;
}

}  // namespace

std::array<StageWork, kStageCount> stage_work(const RunConfig& config, const StepPlan& step, int layer) {
  const LayerKind kind = config.layers.at(static_cast<std::size_t>(layer));
  const Geometry& g = config.geometry;
  const Sums sums = sums_of(config, step, kind);
  const double t = sums.tokens;
  const double q_width = double{kHeadDim} * g.heads;
  const double latent = double(g.o_groups) * g.o_lora;
  const double channels = compressor_channels(kind, kHeadDim);
  const double index_channels = compressor_channels(kind, kIndexDim);
  const double pool_rows = kind == LayerKind::csa ? 8 : 128;

  std::array<StageWork, kStageCount> work{};
  const auto at = [&](Stage stage) -> StageWork& { return work[static_cast<std::size_t>(stage)]; };
  at(Stage::layer_input).bytes = t * g.dim * 3;
  at(Stage::q_down).flop = 2 * t * g.dim * g.q_lora;
  at(Stage::q_up).flop = 2 * t * g.q_lora * q_width;
  at(Stage::kv_window).flop = 2 * t * g.dim * kHeadDim;
  at(Stage::compress_project).flop = 4 * t * g.dim * channels;
  at(Stage::compress_state).bytes = sums.state_rows * channels * kStateBytes;
  at(Stage::compress_pool).bytes = sums.closed * (pool_rows * 8 + 4) * kHeadDim;
  at(Stage::compress_finish).bytes =
      sums.closed * (kHeadDim * 6 + kNopeDim + 2 * kRopeDim + layout::kKvScales + 2 * layout::kKvRowBytes);
  at(Stage::indexer_project).flop = 4 * t * g.dim * index_channels;
  at(Stage::indexer_state).bytes = sums.state_rows * index_channels * kStateBytes;
  at(Stage::indexer_pool).bytes = sums.closed * (8 * 8 + 4) * kIndexDim;
  at(Stage::indexer_finish).bytes = sums.closed * (kIndexDim * 7 + 4 + 2 * layout::kIndexFp8RowBytes);
  at(Stage::indexer_query).flop =
      2 * t * (double(g.q_lora) * g.index_heads * kIndexDim + double(g.dim) * g.index_heads);
  at(Stage::indexer_score).flop = 2 * sums.visible * g.index_heads * (kIndexDim + 1.0);
  at(Stage::indexer_select).bytes = sums.visible * 4 + t * g.index_topk * 4;
  // A slot and a logical index of every column, the lengths, and the selection that compressed keys come from.
  at(Stage::attention_lists).bytes = t * ((kWindow + sums.width) * 8 + (has_compressor(kind) ? 8 : 4)) +
                                     (has_indexer(kind) ? sums.attended * 4 : 0);
  at(Stage::attention_core).flop = 4 * sums.keys * q_width;
  at(Stage::output_project).flop = 2 * t * (q_width * g.o_lora + latent * g.dim);
  return work;
}

}  // namespace dsv4::cli
