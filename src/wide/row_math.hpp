/// Row-wise arithmetic in float64 with bounds: RMS norm, RoPE, Hadamard (docs/numerics.md 8, 9, 10, 18).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/geometry.hpp"
#include "model/profile.hpp"
#include "wide/bounds.hpp"

namespace dsv4::wide {

/// A matrix of balls.
struct Balls {
  Values value;
  Values radius;

  Balls() = default;
  Balls(Eigen::Index rows, Eigen::Index columns) : value(rows, columns), radius(rows, columns) {}
  /// Exactly known values.
  explicit Balls(Values exactly)
      : value(std::move(exactly)), radius(Values::Zero(value.rows(), value.cols())) {}

  Eigen::Index rows() const { return value.rows(); }
  Eigen::Index columns() const { return value.cols(); }
  Ball at(Eigen::Index i, Eigen::Index j) const { return {value(i, j), radius(i, j)}; }
  void set(Eigen::Index i, Eigen::Index j, Ball ball) {
    value(i, j) = ball.value;
    radius(i, j) = ball.radius;
  }
  /// The same elements in another shape.
  void reshape(Eigen::Index rows, Eigen::Index columns) {
    value.resize(rows, columns);
    radius.resize(rows, columns);
  }
  /// A bf16 rounding point at every element, or none where the profile has none.
  void round_to_bf16(bool skip);
};

/// x / sqrt(mean(x^2) + eps), times `weight` unless empty, for every row; the last rounding is left to the
/// caller. `head`: which intermediate results of a head norm are bf16 rounding points (sections 17, 18);
/// `order`: whether x * factor is one before the weight.
Balls rms_norm(const Balls& x, std::span<const double> weight, double eps, HeadNorm head = HeadNorm::f32,
               NormWeight order = NormWeight::then_round);

/// cos and sin of the 32 angles of one position.
struct Rotation {
  std::array<double, kRopeDim / 2> cosine;
  std::array<double, kRopeDim / 2> sine;
  bool bf16 = false;  ///< another rounding, to bf16 (axis rope_table)
};

class Rope {
 public:
  /// Frequencies of a layer kind; UsageError if YaRN's limits lie within 1e-6 of an integer.
  Rope(const Geometry& geometry, LayerKind kind, RopeTable table = RopeTable::f32);
  Rotation at(std::int32_t position) const;
  std::span<const float> frequencies() const { return frequencies_; }

 private:
  std::array<float, kRopeDim / 2> frequencies_{};
  RopeTable table_;
};

/// Rotates columns first .. first + 63 of a row in place; the inverse turns back.
void rotate(Balls& x, Eigen::Index row, Eigen::Index first, const Rotation& rotation, bool inverse);

/// Walsh-Hadamard transform of every 128-wide row, divided by sqrt(128); in place.
void hadamard(Balls& x, bool exact);

}  // namespace dsv4::wide
