/// indexer.select: the best index_topk of the visible entries (docs/numerics.md 2, 13, 18).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// Numbers before minus infinity before NaN.
int rank_class(double score) {
  return std::isnan(score) ? 2 : score == -HUGE_VAL ? 1 : 0;
}

/// Whether entry a is selected before entry b.
bool before(const double* scores, std::int32_t a, std::int32_t b) {
  const int class_a = rank_class(scores[a]);
  const int class_b = rank_class(scores[b]);
  if (class_a != class_b) return class_a < class_b;
  if (class_a == 0 && scores[a] != scores[b]) return scores[a] > scores[b];
  return a < b;
}

}  // namespace

void indexer_select(Layer& layer) {
  const Values scores = layer.input(TensorId::scores);
  const auto visible = layer.integers(TensorId::visible);
  const std::int64_t topk = layer.geometry().index_topk;
  const std::int64_t tokens = std::ssize(visible);
  std::vector<std::int32_t> selected(static_cast<std::size_t>(tokens * topk), -1);
  std::vector<std::int32_t> counts(static_cast<std::size_t>(tokens), -1);
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const auto token = static_cast<std::size_t>(layer.rows()[i]);
    std::vector<std::int32_t> order(static_cast<std::size_t>(visible[token]));
    std::iota(order.begin(), order.end(), 0);
    const double* const row = scores.data() + static_cast<Eigen::Index>(i) * scores.cols();
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return before(row, a, b); });
    if (std::ssize(order) > topk) order.resize(static_cast<std::size_t>(topk));
    if (layer.axis<SelectOrder>() == SelectOrder::ascending) std::sort(order.begin(), order.end());
    counts[token] = static_cast<std::int32_t>(order.size());
    std::copy(order.begin(), order.end(), selected.begin() + static_cast<std::int64_t>(token) * topk);
  }
  layer.publish_integers(TensorId::selected, {tokens, topk}, selected);
  layer.publish_integers(TensorId::selected_count, {tokens}, counts);
}

}  // namespace dsv4::wide
