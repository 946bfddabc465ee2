/// Range, saturation and error figures of one tensor: the `stats` and `error` rows of reports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/comparison.hpp"
#include "model/observation.hpp"

namespace dsv4::compare {

/// Entropy of softmax distributions, in nats: 0 is one-hot, `uniform` what even weights would have.
struct Entropy {
  std::int64_t count = 0;  ///< distributions: tokens times heads
  double minimum = 0;
  double maximum = 0;
  double sum = 0;
  double uniform_sum = 0;

  void add(double nats, double uniform) {
    minimum = count == 0 ? nats : std::min(minimum, nats);
    maximum = count == 0 ? nats : std::max(maximum, nats);
    sum += nats;
    uniform_sum += uniform;
    ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
  double uniform() const { return uniform_sum / static_cast<double>(count); }
};

/// Figures of one tensor on one side. Padding rows and scores at or beyond `visible` are left out. Codes are
/// read with their scales where those are at hand, so that ranges are those of the values.
struct TensorStatistics {
  std::int64_t step = 0;
  int layer = 0;
  TensorId id{};
  std::int64_t elements = 0;
  double minimum = 0;  ///< over finite elements
  double maximum = 0;
  double rms = 0;
  NonFinite nonfinite;
  std::optional<double> clamped;  ///< codes: share at the largest magnitude of the format (448 or 6)
  std::optional<double> flushed;  ///< codes: share that is zero
  std::map<int, std::int64_t> scale_exponents;  ///< scales: exponent -> count
  std::optional<Entropy> entropy;  ///< attention.core/out: of the softmax, where caches can be read
};

/// Difference of a tensor from another source's.
struct ErrorFigures {
  std::int64_t step = 0;
  int layer = 0;
  TensorId id{};
  std::int64_t elements = 0;
  double frobenius_ratio = 0;          ///< ||a - b|| / ||b||, b the yardstick; 0 / 0 is 0
  double worst_in_rms = 0;             ///< max |a - b| / RMS(b)
  std::optional<double> codes_differ;  ///< share of codes that differ
  std::optional<double> worst_ratio;   ///< worst share of the stated bound (bound_check.hpp)
};

std::vector<TensorStatistics> statistics(const StepObservation& observation, const SourceInfo& info);

/// For every float tensor that both sides have. `yardstick` gives its unrounded values where it has them.
/// A scale is judged by its codes and has no row.
std::vector<ErrorFigures> error_figures(const StepObservation& observation, const StepObservation& yardstick);

/// Error figures pooled over steps and layers by stage and tensor: squares are added, worst figures kept.
class ErrorTable {
 public:
  /// With `judged`, worst ratios are those of the tensors that it judged by bound: elsewhere the inputs
  /// differ and a ratio says nothing.
  void add(const StepObservation& observation, const StepObservation& yardstick,
           const StepComparison* judged = nullptr);
  /// In catalogue order; step and layer are -1.
  std::vector<ErrorFigures> rows() const;

 private:
  struct Sums {
    std::int64_t elements = 0;
    double difference_squares = 0;
    double yardstick_squares = 0;
    double worst_in_rms = 0;
    std::int64_t codes = 0;
    std::int64_t codes_differ = 0;
    std::optional<double> worst_ratio;
  };
  std::map<TensorId, Sums> sums_;
};

}  // namespace dsv4::compare
