/// What the judges of judge.hpp share: distances of numbers in which two NaN are one, and scale blocks of
/// codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "model/tensor.hpp"

namespace dsv4::compare {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline bool same_number(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

inline double distance(double a, double b) {
  if (same_number(a, b)) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? kInfinity : difference;
}

/// Which scale belongs to which code: the last axis of the codes is cut into as many blocks as the scales'
/// has.
struct Blocks {
  std::int64_t dims = 0;
  std::int64_t count = 0;
  std::int64_t size = 0;

  Blocks(const Tensor& codes, const Tensor* scales) {
    dims = codes.shape().empty() ? 1 : codes.shape().back();
    count =
        scales == nullptr || scales->shape().empty() ? 1 : std::max<std::int64_t>(scales->shape().back(), 1);
    size = std::max<std::int64_t>(dims / count, 1);
  }
  std::int64_t scale_of(std::int64_t code) const {
    return code / dims * count + std::min(code % dims / size, count - 1);
  }
  std::int64_t first_code(std::int64_t scale) const { return scale / count * dims + scale % count * size; }
};

}  // namespace dsv4::compare
