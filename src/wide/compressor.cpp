#include "wide/compressor.hpp"

#include <algorithm>
#include <cmath>

namespace dsv4::wide {
namespace {

/// One token of one channel: index 0 opens a group.
void update(OnlineState& state, std::size_t c, int index, double score, double kv) {
  if (index == 0) {
    state.max[c] = score;
    state.sum[c] = {1, 0};
    state.weighted[c] = {kv, 0};
    return;
  }
  double m = state.max[c] > score ? state.max[c] : score;
  if (std::isnan(score)) m = state.max[c];  // NaN never wins a maximum
  const Ball keep = stepped(exponential(stepped(Ball{state.max[c] - m, 0})));
  const Ball gain = stepped(exponential(stepped(Ball{score - m, 0})));
  state.sum[c] = stepped(state.sum[c] * keep + gain);
  state.weighted[c] = stepped(state.weighted[c] * keep + stepped(gain * kv));
  state.max[c] = m;
}

void load_bank(const Layer& layer, const RequestStep& step, OnlineState& state) {
  const std::vector<double> row =
      layer.caches.read_state(Cache::state, layer.caches.online_slot({*step.tables, step.state_base}, 0));
  const std::size_t width = state.max.size();
  for (std::size_t c = 0; c < width; ++c) {
    state.max[c] = row[c];
    state.sum[c] = {row[width + c], 0};
    state.weighted[c] = {row[2 * width + c], 0};
  }
}

}  // namespace

Compressor compressor(const Layer& layer, bool indexer) {
  using enum TensorId;
  const LayerWeights& weights = *layer.weights;
  if (indexer) {
    return {true,
            kIndexDim,
            compressor_channels(layer.kind, kIndexDim),
            Cache::index_state,
            Cache::index_entries,
            weights.indexer_compressor,
            indexer_kv,
            indexer_score_raw,
            indexer_state_kv,
            indexer_state_score,
            indexer_state_slot,
            indexer_state_token,
            indexer_pooled,
            indexer_pool_request,
            indexer_pool_index};
  }
  return {false,
          kHeadDim,
          compressor_channels(layer.kind, kHeadDim),
          Cache::state,
          Cache::entries,
          weights.compressor,
          compress_kv,
          compress_score,
          compress_state_kv,
          compress_state_score,
          compress_state_slot,
          compress_state_token,
          compress_pooled,
          compress_pool_request,
          compress_pool_index};
}

std::vector<ClosedEntry> closed_entries(const Layer& layer, const StepPlan& plan) {
  const int r = ratio(layer.kind);
  std::vector<ClosedEntry> entries;
  for (std::size_t step = 0; step < plan.requests.size(); ++step) {
    const RequestStep& request = plan.requests[step];
    const std::int32_t kept =
        layer.kind == LayerKind::csa ? request.from.entries_c4 : request.from.entries_c128;
    for (std::int32_t index = std::max(request.begin / r, kept); (index + 1) * r <= request.end; ++index) {
      entries.push_back({step, index, (index + 1) * r - 1});
    }
  }
  return entries;
}

std::int32_t state_from(const Layer& layer, const RequestStep& step, bool indexer) {
  if (indexer) return step.from.state_index;
  return layer.kind == LayerKind::csa ? step.from.state_c4 : step.from.state_c128;
}

Projections projections(const Layer& layer, const Compressor& compressor) {
  Projections out;
  out.kv = layer.input(compressor.kv);
  Values score = layer.input(compressor.score);
  const int r = ratio(layer.kind);
  for (Eigen::Index i = 0; i < score.rows(); ++i) {
    const std::int32_t phase = layer.position(static_cast<std::size_t>(i)) % r;
    for (Eigen::Index c = 0; c < score.cols(); ++c) {
      score(i, c) += compressor.weights.ape[static_cast<std::size_t>(phase * compressor.channels + c)];
    }
  }
  out.score = Balls(score);
  for (Eigen::Index i = 0; i < score.rows(); ++i) {
    for (Eigen::Index c = 0; c < score.cols(); ++c) {
      out.score.set(i, c, stepped(out.score.at(i, c)));
      if (!layer.exact()) score(i, c) = static_cast<float>(score(i, c));
    }
  }
  out.rounded_score = std::move(score);
  return out;
}

void scan_online(const Layer& layer, const StepPlan& plan, const Compressor& compressor,
                 const std::function<void(std::size_t, std::size_t, const OnlineState&)>& after) {
  const Projections rows = projections(layer, compressor);
  const auto width = static_cast<std::size_t>(compressor.width);
  for (std::size_t s = 0; s < plan.requests.size(); ++s) {
    const RequestStep& step = plan.requests[s];
    OnlineState state{std::vector<double>(width), std::vector<Ball>(width), std::vector<Ball>(width)};
    bool known = false;
    for (std::int32_t i = 0; i < step.row_count; ++i) {
      const std::int32_t position = step.begin + i;
      const int index = position % ratio(layer.kind);
      if (index != 0 && !known) {
        if (position < state_from(layer, step, false)) continue;
        load_bank(layer, step, state);
      }
      known = true;
      const std::size_t row = layer.first_row_of(s) + static_cast<std::size_t>(i);
      const auto matrix_row = static_cast<Eigen::Index>(row);
      for (std::size_t c = 0; c < width; ++c) {
        const auto column = static_cast<Eigen::Index>(c);
        update(state, c, index, rows.rounded_score(matrix_row, column), rows.kv(matrix_row, column));
      }
      after(s, row, state);
    }
  }
}

}  // namespace dsv4::wide
