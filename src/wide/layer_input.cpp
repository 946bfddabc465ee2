/// layer.input: hidden states and their FP8 activations (docs/numerics.md 11, 16 chain, 20).
#include "wide/formats.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

Values sourced_rows(const Layer& layer, const StepPlan& plan, const HiddenSource& source) {
  const int dim = layer.geometry().dim;
  Values rows(std::ssize(layer.rows()), dim);
  std::vector<std::uint16_t> codes(static_cast<std::size_t>(dim));
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    source.hidden(layer.index, plan.rows[static_cast<std::size_t>(layer.rows()[static_cast<std::size_t>(i)])],
                  codes);
    for (int j = 0; j < dim; ++j) rows(i, j) = bf16_value(codes[static_cast<std::size_t>(j)]);
  }
  return rows;
}

/// RMS norm, weight 1, of the sum of the layer below's input and output, which is rounded to bf16 first.
Balls chained_rows(const Layer& layer, const Layer& previous) {
  Balls sum(previous.input(TensorId::hidden) + previous.input(TensorId::hidden_out));
  for (Eigen::Index i = 0; i < sum.rows(); ++i) {
    for (Eigen::Index j = 0; j < sum.columns(); ++j) sum.set(i, j, stepped(sum.at(i, j)));
  }
  sum.round_to_bf16(layer.exact());
  return rms_norm(sum, {}, static_cast<double>(layer.geometry().eps), HeadNorm::f32,
                  layer.rounding<NormWeight>());
}

}  // namespace

void layer_input(Layer& layer, const StepPlan& plan, const HiddenSource& source, const Layer* previous,
                 const InputStore& store) {
  const std::int64_t dim = layer.geometry().dim;
  const auto content = [&](Eigen::Index i) {
    return plan.rows[static_cast<std::size_t>(layer.rows()[static_cast<std::size_t>(i)])].content;
  };
  Balls hidden;
  if (previous == nullptr) {
    hidden = Balls(sourced_rows(layer, plan, source));
    layer.publish_copy(TensorId::hidden, {dim}, hidden.value);
  } else if (plan.kind == StepKind::restore) {
    Values rows(std::ssize(layer.rows()), dim);
    for (Eigen::Index i = 0; i < rows.rows(); ++i) {
      rows.row(i) = Eigen::Map<const Eigen::RowVectorXd>(store.get(layer.index, content(i)).data(), dim);
    }
    hidden = Balls(std::move(rows));
    layer.publish_copy(TensorId::hidden, {dim}, hidden.value);
  } else {
    hidden = layer.publish_bf16(TensorId::hidden, {dim}, chained_rows(layer, *previous));
  }
  if (layer.exact()) return;
  Quantised activations = quantise(hidden, dim, layer.activation_format());
  layer.publish_codes(TensorId::hidden_codes, TensorId::hidden_scales, {dim}, {activations.blocks},
                      activations, false, false);
}

}  // namespace dsv4::wide
