#include "reference/rope.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "arith/bf16.hpp"
#include "arith/sin_cos.hpp"
#include "model/error.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

/// Pair index at which a dim turns `rotations` times within the original context. The logarithms are the only
/// library functions near the frequencies; checked_bound() refuses arguments whose rounding could matter.
double correction_dim(const Geometry& geometry, double rotations) {
  constexpr double kPi = 3.14159265358979323846;
  const double wave = static_cast<double>(geometry.yarn_original) / (rotations * 2 * kPi);
  return kRopeDim * std::log(wave) / (2 * std::log(geometry.compress_rope_theta));
}

double checked_bound(std::string_view field, double value, double whole) {
  if (!(std::abs(value - std::round(value)) > 1e-6)) {
    throw UsageError("model field " + std::string(field) + ": the YaRN bound " + std::to_string(value) +
                     " lies within 1e-6 of an integer, its rounding is not reproducible");
  }
  return std::clamp(whole, 0.0, kRopeDim - 1.0);
}

/// f[i] = rn32(1 / rn32(p[i])), p[i] = base^(i / 32) by five IEEE square roots and products in float64.
std::array<float, kRopePairs> plain_frequencies(double base) {
  double step = base;
  for (int i = 0; i < 5; ++i) step = std::sqrt(step);
  std::array<float, kRopePairs> f{};
  double power = 1.0;
  for (float& value : f) {
    value = 1.0F / static_cast<float>(power);
    power = power * step;
  }
  return f;
}

void stretch(const Geometry& geometry, std::array<float, kRopePairs>& f) {
  const double fast = correction_dim(geometry, geometry.beta_fast);
  const double slow = correction_dim(geometry, geometry.beta_slow);
  const auto low = static_cast<float>(checked_bound("beta_fast", fast, std::floor(fast)));
  const auto high = static_cast<float>(checked_bound("beta_slow", slow, std::ceil(slow)));
  if (!(high > low)) {
    throw UsageError("model fields beta_fast and beta_slow: the YaRN bounds " + std::to_string(low) +
                     " and " + std::to_string(high) + " are not ascending");
  }
  const auto factor = static_cast<float>(geometry.yarn_factor);
  const float width = high - low;
  for (int i = 0; i < kRopePairs; ++i) {
    float u = (static_cast<float>(i) - low) / width;
    u = u > 0.0F ? u : 0.0F;
    u = u < 1.0F ? u : 1.0F;
    const float m = 1.0F - u;
    const float plain = f[static_cast<std::size_t>(i)];
    const float stretched = (plain / factor) * (1.0F - m);
    const float kept = plain * m;
    f[static_cast<std::size_t>(i)] = stretched + kept;
  }
}

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

}  // namespace

RopeAngleTable::RopeAngleTable(const Geometry& geometry, LayerKind kind, RopeTable precision)
    : precision_(precision) {
  if (has_compressor(kind)) {
    frequencies_ = plain_frequencies(geometry.compress_rope_theta);
    stretch(geometry, frequencies_);
  } else {
    frequencies_ = plain_frequencies(geometry.rope_theta);
  }
}

RopeAngles RopeAngleTable::at(std::int64_t position) const {
  RopeAngles angles;
  const auto p = static_cast<float>(position);
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const float angle = p * frequencies_[i];
    angles.cos[i] = arith::cos(angle);
    angles.sin[i] = arith::sin(angle);
    if (precision_ == RopeTable::bf16) {
      angles.cos[i] = to_bf16_value(angles.cos[i]);
      angles.sin[i] = to_bf16_value(angles.sin[i]);
    }
  }
  return angles;
}

void rope_rotate(float* x, const RopeAngles& angles, RopeDirection direction) {
  if (direction == RopeDirection::forward) {
    simd::kernels().rotate(x, angles.cos.data(), angles.sin.data(), kRopePairs);
    return;
  }
  std::array<float, kRopePairs> negated;
  for (std::size_t i = 0; i < kRopePairs; ++i) negated[i] = -angles.sin[i];
  simd::kernels().rotate(x, angles.cos.data(), negated.data(), kRopePairs);
}

void rope_rotate(std::uint16_t* x, const RopeAngles& angles, RopeDirection direction) {
  float values[kRopeDim];
  simd::kernels().widen_bf16(x, kRopeDim, values);
  rope_rotate(values, angles, direction);
  simd::kernels().round_bf16(values, kRopeDim, x);
}

}  // namespace dsv4::reference
