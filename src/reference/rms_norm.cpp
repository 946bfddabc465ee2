#include "reference/rms_norm.hpp"

#include <cmath>
#include <vector>

#include "arith/bf16.hpp"
#include "reference/sums.hpp"

namespace dsv4::reference {
namespace {

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

/// 1 / sqrt(S / n + eps), each operation rounded once.
float norm_factor(const float* x, std::int64_t n, float eps) {
  const float mean = dot32(x, x, n) / static_cast<float>(n);
  return 1.0F / std::sqrt(mean + eps);
}

std::vector<float> widened(const std::uint16_t* x, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = arith::bf16_to_f32(x[i]);
  return values;
}

/// The factor of section 18: every intermediate is a bf16 value.
float bf16_factor(const float* x, std::int64_t n, float eps) {
  std::vector<float> squares(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) squares[static_cast<std::size_t>(i)] = to_bf16_value(x[i] * x[i]);
  const float mean = to_bf16_value(sum32(squares.data(), n) / static_cast<float>(n));
  const float shifted = to_bf16_value(mean + eps);
  return to_bf16_value(1.0F / std::sqrt(shifted));
}

}  // namespace

void rms_norm(const float* x, std::int64_t n, const std::uint16_t* weight, float eps, NormWeight order,
              float* out) {
  const float factor = norm_factor(x, n, eps);
  for (std::int64_t i = 0; i < n; ++i) {
    float y = x[i] * factor;
    if (order == NormWeight::round_then) y = to_bf16_value(y);
    if (weight != nullptr) y = y * arith::bf16_to_f32(weight[i]);
    out[i] = y;
  }
}

void rms_norm(const std::uint16_t* x, std::int64_t n, const std::uint16_t* weight, float eps,
              NormWeight order, std::uint16_t* out) {
  std::vector<float> values = widened(x, n);
  rms_norm(values.data(), n, weight, eps, order, values.data());
  for (std::int64_t i = 0; i < n; ++i) out[i] = arith::f32_to_bf16(values[static_cast<std::size_t>(i)]);
}

void head_norm(const std::uint16_t* x, std::int64_t n, float eps, HeadNorm mode, std::uint16_t* out) {
  const std::vector<float> values = widened(x, n);
  float factor = 0;
  switch (mode) {
    case HeadNorm::f32:
      factor = norm_factor(values.data(), n, eps);
      break;
    case HeadNorm::bf16:
      factor = bf16_factor(values.data(), n, eps);
      break;
    case HeadNorm::factor_bf16:
      factor = to_bf16_value(norm_factor(values.data(), n, eps));
      break;
  }
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = arith::f32_to_bf16(values[static_cast<std::size_t>(i)] * factor);
}

}  // namespace dsv4::reference
