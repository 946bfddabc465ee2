#include "wide/bounds.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Distance from the centre's image to the farther end's image.
double farther(double centre, double low, double high) {
  return std::max(std::fabs(high - centre), std::fabs(low - centre));
}

}  // namespace

Ball operator/(Ball a, Ball b) {
  const double quotient = a.value / b.value;
  const double smallest = std::fabs(b.value) - b.radius;
  if (a.radius == 0 && b.radius == 0) return {quotient, 0};
  if (!(smallest > 0)) return {quotient, kInf};
  return {quotient, (a.radius + std::fabs(quotient) * b.radius) / smallest};
}

Ball square_root(Ball a) {
  const double root = std::sqrt(a.value);
  return {root, farther(root, std::sqrt(std::max(a.value - a.radius, 0.0)), std::sqrt(a.value + a.radius))};
}

Ball exponential(Ball a) {
  const double value = std::exp(a.value);
  if (a.radius == 0) return {value, 0};
  return {value, value * std::expm1(a.radius)};  // the upper end is the farther one: exp is convex
}

Ball bf16_point(Ball a) {
  const double value = round_bf16(a.value);
  if (!(a.radius > 0)) return {value, a.radius};
  return {value, farther(value, round_bf16(a.value - a.radius), round_bf16(a.value + a.radius))};
}

Values block_norms(const Eigen::Ref<const Values>& rows, int block, std::span<const double> counts) {
  const Eigen::Index blocks = (rows.cols() + block - 1) / block;
  const Eigen::Map<const Eigen::RowVectorXd> weights(counts.data(), rows.cols());
  Values norms(rows.rows(), blocks);
  for (Eigen::Index b = 0; b < blocks; ++b) {
    const Eigen::Index first = b * block;
    const Eigen::Index length = std::min<Eigen::Index>(block, rows.cols() - first);
    norms.col(b) =
        (rows.middleCols(first, length).cwiseAbs2() * weights.segment(first, length).transpose()).cwiseSqrt();
  }
  return norms;
}

std::vector<double> lane_counts(std::int64_t n) {
  const std::int64_t steps = (n + 31) / 32;
  std::vector<double> counts(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    counts[static_cast<std::size_t>(i)] = static_cast<double>(steps - i / 32 + 5);
  return counts;
}

}  // namespace dsv4::wide
