/// indexer.score: ReLU(q.k) weighted over heads for every visible entry (docs/numerics.md 13, 18).
///
/// Bound: q.k is a dot32 over 128 (Cauchy-Schwarz over its four lane steps); ReLU does not widen a ball; the
/// sum over heads rounds a term at most lane_roundings(heads) times; FP8 multiplies by the key's scale once.
/// With index_round bf16 the dot, each product and the sum are bf16 rounding points.
#include <algorithm>

#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// Index rows of one request, read once a step.
struct IndexKeys {
  Values rows;   ///< [entries, 128]
  Values norms;  ///< of its lane steps
  std::vector<double> scales;
};

IndexKeys read_index_keys(const Layer& layer, const RequestStep& step, std::span<const double> counts) {
  const std::int32_t entries = step.end / ratio(layer.kind);
  IndexKeys keys;
  keys.rows.resize(entries, kIndexDim);
  for (std::int32_t j = 0; j < entries; ++j) {
    const std::int64_t slot = layer.caches.slot(Cache::index_entries, {*step.tables, step.state_base}, j);
    if (slot < 0) throw InternalError("a visible index entry has no page");
    keys.scales.push_back(layer.caches.read_index(slot, keys.rows.data() + j * kIndexDim));
  }
  keys.norms = block_norms(keys.rows, 32, counts);
  return keys;
}

Ball relu(Ball t) {
  if (!(t.value > 0)) return {0, std::isnan(t.value) ? 0 : std::max(0.0, t.value + t.radius)};
  return t;
}

/// Queries as the dot reads them: codes (FP8, whose scale is in the weights), dequantised (FP4), values
/// (exact).
Values queries(const Layer& layer) {
  Values q = layer.input(TensorId::query_codes);
  if (layer.tensor(TensorId::query_codes)->dtype() != DType::float4_e2m1fn) return q;
  const Values scales = layer.input(TensorId::query_scales);
  const Eigen::Index block = q.cols() / scales.cols();
  for (Eigen::Index i = 0; i < q.rows(); ++i) {
    for (Eigen::Index c = 0; c < q.cols(); ++c) q(i, c) *= scales(i, c / block);
  }
  return q;
}

/// Score of one entry from the dots of all heads.
Ball head_sum(const Balls& dots, Eigen::Index entry, const double* weights, bool bf16_steps) {
  Ball sum;
  double magnitude = 0;
  for (Eigen::Index head = 0; head < dots.rows(); ++head) {
    Ball t = dots.at(head, entry);
    if (bf16_steps) t = bf16_point(t);
    Ball term = relu(t) * weights[head];
    if (bf16_steps) term = bf16_point(stepped(term));
    sum = sum + term;
    magnitude += std::fabs(term.value) + term.radius;
  }
  sum.radius += roundings(lane_roundings(dots.rows())) * magnitude + kTiny;
  return sum;
}

}  // namespace

void indexer_score(Layer& layer, const StepPlan& plan) {
  const std::int64_t tokens = std::ssize(plan.rows);
  const int heads = layer.geometry().index_heads;
  const int r = ratio(layer.kind);
  const bool bf16_steps = layer.axis<IndexRound>() == IndexRound::bf16 && !layer.exact();
  const Values q = queries(layer);
  const Values weights = layer.input(TensorId::query_weights);
  const std::vector<double> counts = lane_counts(kIndexDim);

  std::vector<std::int32_t> visible(static_cast<std::size_t>(tokens), -1);
  std::int32_t widest = 0;
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const std::int32_t count = (layer.position(i) + 1) / r;
    visible[static_cast<std::size_t>(layer.rows()[i])] = count;
    widest = std::max(widest, count);
  }
  Balls scores(Values::Zero(q.rows(), widest));
  for (std::size_t s = 0; s < plan.requests.size(); ++s) {
    const RequestStep& step = plan.requests[s];
    const IndexKeys keys = read_index_keys(layer, step, counts);
    const auto first = static_cast<Eigen::Index>(layer.first_row_of(s));
#pragma omp parallel for schedule(dynamic)
    for (Eigen::Index row = first; row < first + step.row_count; ++row) {
      const Eigen::Index entries = (layer.position(static_cast<std::size_t>(row)) + 1) / r;
      const Eigen::Map<const Values> query(q.data() + row * q.cols(), heads, kIndexDim);
      Balls dots;
      dots.value = query * keys.rows.topRows(entries).transpose();
      dots.radius =
          (block_norms(query, 32, counts) * keys.norms.topRows(entries).transpose()) * (kUnit * 1.001);
      for (Eigen::Index j = 0; j < entries; ++j) {
        Ball score = head_sum(dots, j, weights.data() + row * weights.cols(), bf16_steps);
        const double scale = keys.scales[static_cast<std::size_t>(j)];
        if (scale != 1) score = stepped(score * scale);
        scores.set(row, j, score);
      }
    }
  }
  scores.round_to_bf16(!bf16_steps);
  layer.publish_f32(TensorId::scores, {widest}, scores);
  layer.publish_integers(TensorId::visible, {tokens}, visible);
}

}  // namespace dsv4::wide
