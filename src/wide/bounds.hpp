/// Error bounds: values of the wide engine carry the largest distance that a float32 evaluation of the same
/// formula from the same inputs can have from them.
///
/// A Ball is (value, radius): the wide engine's float64 value, and a radius such that the float32 engine's
/// value lies within it. Every rule below is the standard model of IEEE arithmetic, fl(a op b) = (a op b)(1 +
/// d) with |d| <= u = 2^-24, plus an absolute 2^-150 where the result may be subnormal. Radii are propagated
/// with the exact product and quotient rules, second-order terms included. kUnit is u enlarged by 2^-20:
/// float64's own roundings, at most a few 2^-53 for each float32 rounding, disappear in that share.
///
/// A rounding point of the profile turns a value into the format's nearest and the radius into the distance
/// to the farthest format value that any point of the ball rounds to: zero, unless the ball reaches a
/// rounding boundary. Rounding is monotone, so its two ends suffice.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <span>

namespace dsv4::wide {

using Values = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline constexpr double kUnit = 0x1p-24 * (1 + 0x1p-20);
inline constexpr double kTiny = 0x1p-149;  ///< absolute error of a rounding that underflows, doubled

struct Ball {
  double value = 0;
  double radius = 0;
};

inline Ball operator+(Ball a, Ball b) {
  return {a.value + b.value, a.radius + b.radius};
}
inline Ball operator-(Ball a, Ball b) {
  return {a.value - b.value, a.radius + b.radius};
}
inline Ball operator*(Ball a, Ball b) {
  return {a.value * b.value,
          std::fabs(a.value) * b.radius + std::fabs(b.value) * a.radius + a.radius * b.radius};
}
inline Ball operator*(Ball a, double factor) {
  return {a.value * factor, a.radius * std::fabs(factor)};
}
/// |x/y - a/b| <= (|a - x| + |a/b| |b - y|) / |y|, and |y| >= |b| - radius. Infinite if the divisor may be 0.
Ball operator/(Ball a, Ball b);

/// One float32 rounding of the other engine; the value stays.
inline Ball stepped(Ball a) {
  return {a.value, a.radius + kUnit * (std::fabs(a.value) + a.radius) + kTiny};
}

/// Monotone functions, by the ends of the ball, without their own rounding.
Ball square_root(Ball a);
Ball exponential(Ball a);

/// A rounding point: bf16 of the ball.
Ball bf16_point(Ball a);

/// (1 + u)^count - 1, the largest relative error of a value that passed `count` float32 roundings.
inline double roundings(double count) {
  const double first = count * kUnit;
  return first / (1 - first);  // gamma_n
}

/// Roundings that a term of dot32 or sum32 over n passes at most: one for each of its lane's additions, and
/// the five levels of the tree.
inline double lane_roundings(std::int64_t n) {
  return static_cast<double>((n + 31) / 32 + 5);
}

/// Weighted norms of blocks, [rows, blocks]. Where term i of a sum of products passes count_i float32
/// roundings,
///   |error| / u <= sum_i count_i |x_i y_i|
///               <= sum over blocks of sqrt(sum_i count_i x_i^2) sqrt(sum_i count_i y_i^2)   (Cauchy-Schwarz)
/// so that the bounds of a whole matrix of such sums are a product of two matrices of norms.
Values block_norms(const Eigen::Ref<const Values>& rows, int block, std::span<const double> counts);

/// Counts for dot32 over n (docs/numerics.md 5): element i belongs to lane step floor(i / 32) of ceil(n /
/// 32).
std::vector<double> lane_counts(std::int64_t n);

}  // namespace dsv4::wide
