#include "compare/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/element.hpp"
#include "compare/meaning.hpp"
#include "compare/packed_row.hpp"
#include "compare/rule.hpp"

namespace dsv4::compare {
namespace {

const Tensor* find(const std::map<TensorId, Tensor>& tensors, TensorId id) {
  const auto found = tensors.find(id);
  return found == tensors.end() ? nullptr : &found->second;
}

// Judged elements of each row: none in padding rows, scores up to `visible`.
class Counted {
 public:
  Counted(const StepObservation& step, const LayerObservation& layer, TensorId id, const Tensor& tensor)
      : width_(tensor.row_elements()),
        rows_(tensor.shape().empty() ? 0 : static_cast<std::size_t>(tensor.dim(0)), width_) {
    const Tensor& request = step.batch.request;
    if (info(id).dims.starts_with("token") && !request.shape().empty() && request.dtype() == DType::int32 &&
        request.dim(0) == static_cast<std::int64_t>(rows_.size())) {
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (request.as<std::int32_t>()[row] < 0) rows_[row] = 0;
      }
    }
    const Tensor* visible = id == TensorId::scores ? find(layer.tensors, TensorId::visible) : nullptr;
    if (visible != nullptr && visible->elements() == static_cast<std::int64_t>(rows_.size())) {
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        const std::int64_t limit = std::max(visible->as<std::int32_t>()[row], 0);
        rows_[row] = std::min(rows_[row], limit);
      }
    }
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::int64_t begin = static_cast<std::int64_t>(row) * width_;
      for (std::int64_t i = begin; i < begin + rows_[row]; ++i) visit(i);
    }
  }

 private:
  std::int64_t width_;
  std::vector<std::int64_t> rows_;
};

// Values of a tensor; codes with their scales where these are at hand.
class Values {
 public:
  Values(const LayerObservation& layer, TensorId id, const Tensor& tensor) : tensor_(tensor) {
    const std::optional<TensorId> scales = scales_of(id);
    if (scales && tensor.dtype() != DType::float64) scales_ = find(layer.tensors, *scales);
    dims_ = tensor.shape().empty() ? 1 : std::max<std::int64_t>(tensor.shape().back(), 1);
    count_ = scales_ == nullptr || scales_->shape().empty()
                 ? 1
                 : std::max<std::int64_t>(scales_->shape().back(), 1);
    // Scales that do not lie row for row beside the codes say nothing about them.
    if (scales_ != nullptr && scales_->elements() / count_ != tensor.elements() / dims_) scales_ = nullptr;
  }
  double scale(std::int64_t i) const {
    if (scales_ == nullptr) return 1;
    const std::int64_t block = std::min(i % dims_ / std::max<std::int64_t>(dims_ / count_, 1), count_ - 1);
    return decode(scales_->dtype(), load_bits(*scales_, i / dims_ * count_ + block));
  }
  double operator()(std::int64_t i) const {
    return decode(tensor_.dtype(), load_bits(tensor_, i)) * scale(i);
  }

 private:
  const Tensor& tensor_;
  const Tensor* scales_ = nullptr;
  std::int64_t dims_ = 1;
  std::int64_t count_ = 1;
};

bool has_statistics(TensorId id, const Tensor& tensor) {
  return is_float(tensor.dtype()) && tensor_class(id) != TensorClass::bytes;
}

TensorStatistics tensor_statistics(const StepObservation& step, const SourceInfo& info_of, int layer,
                                   TensorId id, const Tensor& tensor) {
  const LayerObservation& observation = step.layers[static_cast<std::size_t>(layer)];
  const Values values(observation, id, tensor);
  const bool codes = tensor_class(id) == TensorClass::codes && std::isfinite(saturation(tensor.dtype()));
  const bool scales = tensor_class(id) == TensorClass::scales;
  TensorStatistics result;
  result.step = step.step;
  result.layer = layer;
  result.id = id;
  double squares = 0;
  std::int64_t finite = 0;
  std::int64_t clamped = 0;
  std::int64_t flushed = 0;
  result.minimum = std::numeric_limits<double>::infinity();
  result.maximum = -result.minimum;
  Counted(step, observation, id, tensor).each([&](std::int64_t i) {
    ++result.elements;
    const std::uint64_t bits = load_bits(tensor, i);
    const double raw = decode(tensor.dtype(), bits);
    const double value = scales || !codes ? raw : raw * values.scale(i);
    if (!std::isfinite(value)) {
      if (result.nonfinite.count++ == 0) {
        result.nonfinite.first = coordinate(tensor.shape(), i);
        result.nonfinite.meaning = MeaningOf(info_of, step, layer).element(id, tensor, i);
      }
      return;
    }
    ++finite;
    squares += value * value;
    result.minimum = std::min(result.minimum, value);
    result.maximum = std::max(result.maximum, value);
    if (codes) {
      clamped += std::abs(raw) == saturation(tensor.dtype());
      flushed += raw == 0;
    }
    if (scales && value > 0) ++result.scale_exponents[std::ilogb(value)];
  });
  if (finite == 0) result.minimum = result.maximum = 0;
  result.rms = finite == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite));
  if (codes && result.elements > 0) {
    result.clamped = static_cast<double>(clamped) / static_cast<double>(result.elements);
    result.flushed = static_cast<double>(flushed) / static_cast<double>(result.elements);
  }
  return result;
}

struct Difference {
  std::int64_t elements = 0;
  double difference_squares = 0;
  double yardstick_squares = 0;
  double worst = 0;
  std::int64_t codes = 0;
  std::int64_t codes_differ = 0;
  std::optional<double> worst_ratio;
};

bool comparable(TensorId id, const Tensor& a, const Tensor& b) {
  const TensorClass kind = tensor_class(id);
  return is_float(a.dtype()) && is_float(b.dtype()) && a.elements() == b.elements() &&
         a.shape() == b.shape() && kind != TensorClass::bytes && kind != TensorClass::scales;
}

Difference difference(const StepObservation& step, const StepObservation& yardstick, int layer, TensorId id) {
  const LayerObservation& ours = step.layers[static_cast<std::size_t>(layer)];
  const LayerObservation& theirs = yardstick.layers[static_cast<std::size_t>(layer)];
  const Tensor& a = ours.tensors.at(id);
  const Tensor& b = theirs.tensors.at(id);
  const Tensor* exact = find(theirs.unrounded, id);
  const Tensor* bound = find(theirs.bounds, id);
  if (exact != nullptr && exact->elements() != a.elements()) exact = nullptr;
  if (bound != nullptr && (exact == nullptr || bound->elements() != a.elements())) bound = nullptr;
  const Values value_a(ours, id, a);
  const Values value_b(theirs, id, b);
  const bool codes = tensor_class(id) == TensorClass::codes;
  Difference result;
  Counted(step, ours, id, a).each([&](std::int64_t i) {
    ++result.elements;
    const double x = value_a(i);
    const double scale = value_b.scale(i);
    const double y = exact != nullptr ? exact->as<double>()[static_cast<std::size_t>(i)] * scale : value_b(i);
    if (codes) {
      ++result.codes;
      result.codes_differ += a.dtype() != b.dtype() || load_bits(a, i) != load_bits(b, i);
    }
    if (x == y || (std::isnan(x) && std::isnan(y))) {
      if (std::isfinite(y)) result.yardstick_squares += y * y;
      return;
    }
    const double gap = std::abs(x - y);
    result.difference_squares += gap * gap;
    if (std::isfinite(y)) result.yardstick_squares += y * y;
    result.worst = std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(result.worst, gap);
    if (bound == nullptr) return;
    const double factor = codes ? value_a.scale(i) / scale : 1;
    const RoundingInterval interval = rounding_interval(a.dtype(), load_bits(a, i), false);
    const double point = exact->as<double>()[static_cast<std::size_t>(i)];
    const double excess = std::max({interval.low * factor - point, point - interval.high * factor, 0.0});
    const double ratio = excess == 0 ? 0 : excess / bound->as<double>()[static_cast<std::size_t>(i)];
    result.worst_ratio = std::max(result.worst_ratio.value_or(0), ratio);
  });
  if (bound != nullptr && !result.worst_ratio && result.elements > 0) result.worst_ratio = 0;
  return result;
}

double ratio_of_norms(double difference_squares, double yardstick_squares) {
  if (difference_squares == 0) return 0;
  return std::sqrt(difference_squares / yardstick_squares);
}

double in_rms(double worst, double yardstick_squares, std::int64_t elements) {
  if (worst == 0) return 0;
  return worst / std::sqrt(yardstick_squares / static_cast<double>(elements));
}

template <class Visit>
void each_common(const StepObservation& step, const StepObservation& yardstick, const Visit& visit) {
  const std::size_t layers = std::min(step.layers.size(), yardstick.layers.size());
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (const auto& [id, tensor] : step.layers[layer].tensors) {
      const Tensor* other = find(yardstick.layers[layer].tensors, id);
      if (other == nullptr || !comparable(id, tensor, *other)) continue;
      visit(static_cast<int>(layer), id);
    }
  }
}

}  // namespace

std::vector<TensorStatistics> statistics(const StepObservation& observation, const SourceInfo& info) {
  std::vector<TensorStatistics> rows;
  for (std::size_t layer = 0; layer < observation.layers.size(); ++layer) {
    for (const auto& [id, tensor] : observation.layers[layer].tensors) {
      if (!has_statistics(id, tensor) || tensor.elements() == 0) continue;
      rows.push_back(tensor_statistics(observation, info, static_cast<int>(layer), id, tensor));
    }
  }
  return rows;
}

std::vector<ErrorFigures> error_figures(const StepObservation& observation,
                                        const StepObservation& yardstick) {
  std::vector<ErrorFigures> rows;
  each_common(observation, yardstick, [&](int layer, TensorId id) {
    const Difference d = difference(observation, yardstick, layer, id);
    if (d.elements == 0) return;
    ErrorFigures row;
    row.step = observation.step;
    row.layer = layer;
    row.id = id;
    row.elements = d.elements;
    row.frobenius_ratio = ratio_of_norms(d.difference_squares, d.yardstick_squares);
    row.worst_in_rms = in_rms(d.worst, d.yardstick_squares, d.elements);
    if (d.codes > 0) row.codes_differ = static_cast<double>(d.codes_differ) / static_cast<double>(d.codes);
    row.worst_ratio = d.worst_ratio;
    rows.push_back(row);
  });
  return rows;
}

void ErrorTable::add(const StepObservation& observation, const StepObservation& yardstick,
                     const StepComparison* judged) {
  const auto has_ratio = [judged](int layer, TensorId id) {
    return judged == nullptr || std::ranges::any_of(judged->comparisons, [=](const Comparison& c) {
             return c.layer == layer && c.id == id && c.rule == "bound";
           });
  };
  each_common(observation, yardstick, [&](int layer, TensorId id) {
    const Difference d = difference(observation, yardstick, layer, id);
    if (d.elements == 0) return;
    Sums& sums = sums_[id];
    sums.elements += d.elements;
    sums.difference_squares += d.difference_squares;
    sums.yardstick_squares += d.yardstick_squares;
    sums.worst_in_rms = std::max(sums.worst_in_rms, in_rms(d.worst, d.yardstick_squares, d.elements));
    sums.codes += d.codes;
    sums.codes_differ += d.codes_differ;
    if (d.worst_ratio && has_ratio(layer, id))
      sums.worst_ratio = std::max(sums.worst_ratio.value_or(0), *d.worst_ratio);
  });
}

std::vector<ErrorFigures> ErrorTable::rows() const {
  std::vector<ErrorFigures> rows;
  for (const auto& [id, sums] : sums_) {
    ErrorFigures row;
    row.step = -1;
    row.layer = -1;
    row.id = id;
    row.elements = sums.elements;
    row.frobenius_ratio = ratio_of_norms(sums.difference_squares, sums.yardstick_squares);
    row.worst_in_rms = sums.worst_in_rms;
    if (sums.codes > 0)
      row.codes_differ = static_cast<double>(sums.codes_differ) / static_cast<double>(sums.codes);
    row.worst_ratio = sums.worst_ratio;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace dsv4::compare
