#include "wide/row_math.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "model/error.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

constexpr int kPairs = kRopeDim / 2;

float as_float(double x) {
  return static_cast<float>(x);
}

/// Sum of a row's squares with bound. dot32 rounds a term at most lane_roundings(n) times, and all terms are
/// positive, so the relative error of the sum is at most gamma of that count; the balls of x add their own.
Ball sum_of_squares(const Balls& x, Eigen::Index row) {
  const double sum = x.value.row(row).squaredNorm();
  const double inherited =
      (2 * x.value.row(row).cwiseAbs().cwiseProduct(x.radius.row(row)) + x.radius.row(row).cwiseAbs2()).sum();
  return {sum, inherited + roundings(lane_roundings(x.columns())) * (sum + inherited) + kTiny};
}

/// 1 / sqrt(v): a float32 square root and a float32 division.
Ball inverse_root(Ball v) {
  return stepped(Ball{1, 0} / stepped(square_root(v)));
}

/// The head norm of section 18: squares, mean, mean + eps, factor and product each rounded to bf16.
void bf16_norm_row(const Balls& x, Eigen::Index row, double eps, Balls& out) {
  const Eigen::Index n = x.columns();
  Ball sum;
  for (Eigen::Index i = 0; i < n; ++i) sum = sum + bf16_point(stepped(x.at(row, i) * x.at(row, i)));
  sum.radius += roundings(lane_roundings(n)) * (sum.value + sum.radius);
  const Ball mean = bf16_point(stepped(sum * (1.0 / static_cast<double>(n))));
  const Ball factor = bf16_point(inverse_root(bf16_point(stepped(mean + Ball{eps, 0}))));
  for (Eigen::Index i = 0; i < n; ++i) out.set(row, i, stepped(x.at(row, i) * factor));
}

}  // namespace

void Balls::round_to_bf16(bool skip) {
  if (skip) return;
  for (Eigen::Index i = 0; i < rows(); ++i) {
    for (Eigen::Index j = 0; j < columns(); ++j) set(i, j, bf16_point(at(i, j)));
  }
}

Balls rms_norm(const Balls& x, std::span<const double> weight, double eps, HeadNorm head, NormWeight order) {
  Balls out(x.rows(), x.columns());
  const double n = static_cast<double>(x.columns());
#pragma omp parallel for schedule(static)
  for (Eigen::Index row = 0; row < x.rows(); ++row) {
    if (head == HeadNorm::bf16) {
      bf16_norm_row(x, row, eps, out);
      continue;
    }
    const Ball mean = stepped(sum_of_squares(x, row) / Ball{n, 0});
    Ball factor = inverse_root(stepped(mean + Ball{eps, 0}));
    if (head == HeadNorm::factor_bf16) factor = bf16_point(factor);
    for (Eigen::Index i = 0; i < x.columns(); ++i) {
      Ball y = stepped(x.at(row, i) * factor);
      if (order == NormWeight::round_then) y = bf16_point(y);
      if (!weight.empty()) y = stepped(y * weight[static_cast<std::size_t>(i)]);
      out.set(row, i, y);
    }
  }
  return out;
}

Rope::Rope(const Geometry& geometry, LayerKind kind, RopeTable table) : table_(table) {
  const bool yarn = has_compressor(kind);
  const double base = yarn ? geometry.compress_rope_theta : geometry.rope_theta;
  // The pair whose wavelength makes `turns` full turns over the original context.
  const auto pair_turning = [&](double turns) {
    const double pair =
        kPairs * std::log(static_cast<double>(geometry.yarn_original) / (turns * 2 * std::numbers::pi)) /
        std::log(base);
    if (std::fabs(pair - std::nearbyint(pair)) < 1e-6) {
      throw UsageError(
          "YaRN limit " + std::to_string(pair) +
          " lies within 1e-6 of an integer, so its rounding is not portable (beta_fast, beta_slow, "
          "yarn_original, compress_rope_theta)");
    }
    return pair;
  };
  const auto limit = [](double pair) {
    return as_float(std::clamp(pair, 0.0, static_cast<double>(kRopeDim - 1)));
  };
  float low = 0;
  float high = 1;
  if (yarn) {
    low = limit(std::floor(pair_turning(geometry.beta_fast)));
    high = limit(std::ceil(pair_turning(geometry.beta_slow)));
  }
  for (int i = 0; i < kPairs; ++i) {
    float f = 1.0F / as_float(std::pow(base, static_cast<double>(i) / kPairs));
    if (yarn) {
      const float ramp = std::clamp((as_float(i) - low) / (high - low), 0.0F, 1.0F);
      const float keep = 1.0F - ramp;
      const float slowed = f / as_float(geometry.yarn_factor) * (1.0F - keep);
      f = slowed + f * keep;
    }
    frequencies_[static_cast<std::size_t>(i)] = f;
  }
}

Rotation Rope::at(std::int32_t position) const {
  Rotation rotation;
  rotation.bf16 = table_ == RopeTable::bf16;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double angle = as_float(position) * frequencies_[i];  // rounded to float32: part of the definition
    rotation.cosine[i] = std::cos(angle);
    rotation.sine[i] = std::sin(angle);
  }
  return rotation;
}

void rotate(Balls& x, Eigen::Index row, Eigen::Index first, const Rotation& rotation, bool inverse) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double sine = inverse ? -rotation.sine[i] : rotation.sine[i];
    Ball c{rotation.cosine[i], kUnit * std::fabs(rotation.cosine[i])};  // one rounding to float32
    Ball s{sine, kUnit * std::fabs(sine)};
    if (rotation.bf16) {
      c = bf16_point(c);
      s = bf16_point(s);
    }
    const Eigen::Index even = first + 2 * static_cast<Eigen::Index>(i);
    const Ball e = x.at(row, even);
    const Ball o = x.at(row, even + 1);
    x.set(row, even, stepped(e * c - stepped(o * s)));  // fma: the product with cos is not rounded
    x.set(row, even + 1, stepped(o * c + stepped(e * s)));
  }
}

void hadamard(Balls& x, bool exact) {
  require(x.columns() == kIndexDim, "the Hadamard transform is 128 wide");
  constexpr double kFactorF32 = 0x1.6a09e6p-4;  // float32 of 1 / sqrt(128)
  const double factor = exact ? 1 / std::sqrt(128.0) : kFactorF32;
#pragma omp parallel for schedule(static)
  for (Eigen::Index row = 0; row < x.rows(); ++row) {
    // Every output is a signed sum of all inputs whose terms pass seven roundings.
    const double inherited = x.radius.row(row).sum();
    const double sum_radius = inherited + roundings(7) * (x.value.row(row).cwiseAbs().sum() + inherited);
    for (Eigen::Index h = kIndexDim / 2; h > 0; h /= 2) {
      for (Eigen::Index i = 0; i < kIndexDim; ++i) {
        if ((i & h) != 0) continue;
        const double a = x.value(row, i);
        const double b = x.value(row, i + h);
        x.value(row, i) = a + b;
        x.value(row, i + h) = a - b;
      }
    }
    for (Eigen::Index i = 0; i < kIndexDim; ++i)
      x.set(row, i, stepped(Ball{x.value(row, i), sum_radius} * factor));
  }
}

}  // namespace dsv4::wide
