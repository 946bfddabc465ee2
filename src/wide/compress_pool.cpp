/// compress.pool and indexer.pool: softmax over the window of each closed entry, channel by channel
/// (docs/numerics.md 12.4); online C128 divides the running sums (12.5).
///
/// Bound: scores are given, so their maximum is exact; each weight has the rounding of its argument and of
/// exp, a term of either fold is rounded once for each row from its own on, and the quotient once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "wide/compressor.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// One row of a window: d values of kv and of score + APE.
struct WindowRow {
  const double* kv;
  const double* score;
};

Ball pooled_channel(const std::vector<WindowRow>& rows, std::size_t c) {
  double m = -std::numeric_limits<double>::infinity();
  for (const WindowRow& row : rows) m = row.score[c] > m ? row.score[c] : m;
  Ball denominator;
  Ball sum;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double fold = roundings(static_cast<double>(rows.size() - i));
    Ball e = stepped(exponential(stepped(Ball{rows[i].score[c] - m, 0})));
    e.radius += (e.value + e.radius) * fold;
    denominator = denominator + e;
    sum = sum + e * rows[i].kv[c];
  }
  return stepped(sum / denominator);
}

/// Section 17.3: weights, products and the sum are bf16 rounding points; the sum itself is float32.
Ball pooled_channel_bf16(const std::vector<WindowRow>& rows, std::size_t c) {
  double m = -std::numeric_limits<double>::infinity();
  for (const WindowRow& row : rows) m = row.score[c] > m ? row.score[c] : m;
  std::vector<Ball> e;
  Ball denominator;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    e.push_back(stepped(exponential(stepped(Ball{rows[i].score[c] - m, 0}))));
    Ball term = e.back();
    term.radius += (term.value + term.radius) * roundings(static_cast<double>(rows.size() - i));
    denominator = denominator + term;
  }
  Ball sum;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Ball term = bf16_point(stepped(bf16_point(stepped(e[i] / denominator)) * rows[i].kv[c]));
    term.radius += (std::fabs(term.value) + term.radius) * roundings(static_cast<double>(rows.size() - i));
    sum = sum + term;
  }
  return bf16_point(sum);
}

/// The window of an entry, positions ascending. Ratio 4 reads the columns [0, d) of the group before and [d,
/// 2d) of its own; rows of earlier steps come from the state, which `states` keeps alive.
std::vector<WindowRow> window_rows(const Layer& layer, const StepPlan& plan, const Compressor& self,
                                   const Projections& step_rows, const ClosedEntry& entry,
                                   std::vector<std::vector<double>>& states) {
  const int r = ratio(layer.kind);
  const RequestStep& step = plan.requests[entry.step];
  const std::int32_t own_group = entry.position + 1 - r;
  std::vector<WindowRow> rows;
  for (std::int32_t p = layer.kind == LayerKind::csa ? own_group - r : own_group; p <= entry.position; ++p) {
    if (p < 0) continue;
    const std::int64_t column = layer.kind == LayerKind::csa && p >= own_group ? self.width : 0;
    if (p >= step.begin) {
      const auto row = static_cast<std::int64_t>(layer.first_row_of(entry.step)) + p - step.begin;
      const std::int64_t offset = row * self.channels + column;
      rows.push_back({step_rows.kv.data() + offset, step_rows.rounded_score.data() + offset});
      continue;
    }
    const std::int64_t slot = layer.caches.slot(self.state, {*step.tables, step.state_base}, p);
    if (slot < 0) throw InternalError("a pooled state row has no page");
    states.push_back(layer.caches.read_state(self.state, slot));
    rows.push_back({states.back().data() + column, states.back().data() + self.channels + column});
  }
  return rows;
}

Balls pooled_offline(const Layer& layer, const StepPlan& plan, const Compressor& self,
                     const std::vector<ClosedEntry>& entries) {
  const Projections step_rows = projections(layer, self);
  const auto channel = layer.rounding<PoolMode>() == PoolMode::f32 ? pooled_channel : pooled_channel_bf16;
  Balls pooled(std::ssize(entries), self.width);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::vector<std::vector<double>> states;
    const std::vector<WindowRow> rows = window_rows(layer, plan, self, step_rows, entries[i], states);
    for (int c = 0; c < self.width; ++c) {
      pooled.set(static_cast<Eigen::Index>(i), c, channel(rows, static_cast<std::size_t>(c)));
    }
  }
  return pooled;
}

Balls pooled_online(const Layer& layer, const StepPlan& plan, const Compressor& self,
                    const std::vector<ClosedEntry>& entries) {
  Balls pooled(std::ssize(entries), self.width);
  scan_online(layer, plan, self, [&](std::size_t step, std::size_t row, const OnlineState& state) {
    const auto entry = std::ranges::find_if(entries, [&](const ClosedEntry& closed) {
      return closed.step == step && closed.position == layer.position(row);
    });
    if (entry == entries.end()) return;
    for (std::size_t c = 0; c < state.sum.size(); ++c) {
      pooled.set(entry - entries.begin(), static_cast<Eigen::Index>(c),
                 stepped(state.weighted[c] / state.sum[c]));
    }
  });
  return pooled;
}

}  // namespace

void compress_pool(Layer& layer, const StepPlan& plan, bool indexer) {
  const Compressor self = compressor(layer, indexer);
  const std::vector<ClosedEntry> entries = closed_entries(layer, plan);
  const bool online = layer.caches.online() && !indexer;
  layer.publish_f32(
      self.pooled, {self.width},
      online ? pooled_online(layer, plan, self, entries) : pooled_offline(layer, plan, self, entries));
  std::vector<std::int32_t> requests;
  std::vector<std::int32_t> indices;
  for (const ClosedEntry& entry : entries) {
    requests.push_back(plan.requests[entry.step].request);
    indices.push_back(entry.index);
  }
  layer.publish_integers(self.pool_request, {std::ssize(entries)}, requests);
  layer.publish_integers(self.pool_index, {std::ssize(entries)}, indices);
}

}  // namespace dsv4::wide
