#include "oracle/faults/math.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/sin_cos.hpp"
#include "arith/ue8m0.hpp"
#include "model/layout.hpp"

namespace dsv4::oracle::faults {
namespace {

float tree(std::array<float, 32>& lanes) {
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  }
  return lanes[0];
}

/// Pair at which a dim turns `rotations` times within the original context.
double yarn_pair(const Geometry& geometry, double rotations) {
  const double turn = 2 * 3.14159265358979323846 * rotations;
  return kRopeDim * std::log(static_cast<double>(geometry.yarn_original) / turn) /
         (2 * std::log(geometry.compress_rope_theta));
}

std::array<float, 32> frequencies(const Geometry& geometry, bool yarn) {
  double step = yarn ? geometry.compress_rope_theta : geometry.rope_theta;
  for (int root = 0; root < 5; ++root) step = std::sqrt(step);
  std::array<float, 32> result;
  double power = 1;
  for (float& f : result) {
    f = 1.0F / static_cast<float>(power);
    power = power * step;
  }
  if (!yarn) return result;
  const auto low =
      static_cast<float>(std::clamp(std::floor(yarn_pair(geometry, geometry.beta_fast)), 0.0, 63.0));
  const auto high =
      static_cast<float>(std::clamp(std::ceil(yarn_pair(geometry, geometry.beta_slow)), 0.0, 63.0));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float u = std::min(std::max((static_cast<float>(i) - low) / (high - low), 0.0F), 1.0F);
    const float m = 1.0F - u;
    const float slow = (result[i] / static_cast<float>(geometry.yarn_factor)) * (1.0F - m);
    const float fast = result[i] * m;
    result[i] = slow + fast;
  }
  return result;
}

float amax(std::span<const float> x) {
  float most = 0.0F;
  for (const float value : x) most = std::fabs(value) > most ? std::fabs(value) : most;
  return most;
}

/// Scale of one block, and what a value becomes before it is rounded to a code.
struct BlockScale {
  BlockScale(std::span<const float> block, float floor, float largest, const Quantiser& how)
      : quotient(std::max(amax(block), floor) / largest),
        byte(arith::ue8m0_scale_for(std::max(amax(block), floor), largest)),
        unrounded(how.unrounded) {
    if (how.round_down && arith::ue8m0_to_f32(byte) != quotient) --byte;
  }
  float scaled(float x) const { return unrounded ? x / quotient : x * arith::ue8m0_inverse(byte); }

  float quotient;
  std::uint8_t byte;
  bool unrounded;
};

/// Codes as numbers: the operand of an FP8 product.
struct Operand {
  std::vector<float> values;
  std::vector<std::uint8_t> scales;  ///< of blocks of 128; empty: 1
};

Operand operand_of(std::span<const std::uint16_t> row, bool fp8) {
  if (!fp8) return {widened(row), {}};
  std::vector<std::uint8_t> codes(row.size());
  Operand operand{std::vector<float>(row.size()), std::vector<std::uint8_t>((row.size() + 127) / 128)};
  quantise_e4m3(row, 128, {}, codes, operand.scales);
  std::ranges::transform(codes, operand.values.begin(), [](std::uint8_t c) { return arith::e4m3_to_f32(c); });
  return operand;
}

}  // namespace

float dot32(std::span<const float> x, std::span<const float> y) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 32] = arith::fma(x[i], y[i], lanes[i % 32]);
  return tree(lanes);
}

float sum32(std::span<const float> x) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 32] = lanes[i % 32] + x[i];
  return tree(lanes);
}

std::vector<float> widened(std::span<const std::uint16_t> row) {
  std::vector<float> wide(row.size());
  std::ranges::transform(row, wide.begin(), [](std::uint16_t bits) { return arith::bf16_to_f32(bits); });
  return wide;
}

std::vector<std::uint16_t> rms_norm(std::span<const std::uint16_t> row, std::span<const std::uint16_t> weight,
                                    float eps) {
  const std::vector<float> x = widened(row);
  const float mean = dot32(x, x) / static_cast<float>(x.size());
  const float factor = 1.0F / std::sqrt(mean + eps);
  std::vector<std::uint16_t> out(row.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    float y = x[i] * factor;
    if (!weight.empty()) y = y * arith::bf16_to_f32(weight[i]);
    out[i] = arith::f32_to_bf16(y);
  }
  return out;
}

Angles angles_at(const Geometry& geometry, bool yarn, std::int64_t position) {
  const std::array<float, 32> f = frequencies(geometry, yarn);
  Angles angles;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const float angle = static_cast<float>(position) * f[i];
    angles.cos[i] = arith::cos(angle);
    angles.sin[i] = arith::sin(angle);
  }
  return angles;
}

void rotate(std::span<std::uint16_t> row64, const Angles& angles, bool inverse, Pairing pairing) {
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t even = pairing == Pairing::neighbours ? 2 * i : i;
    const std::size_t odd = pairing == Pairing::neighbours ? 2 * i + 1 : i + 32;
    const float e = arith::bf16_to_f32(row64[even]);
    const float o = arith::bf16_to_f32(row64[odd]);
    const float c = angles.cos[i];
    const float s = inverse ? -angles.sin[i] : angles.sin[i];
    row64[even] = arith::f32_to_bf16(arith::fma(e, c, -(o * s)));
    row64[odd] = arith::f32_to_bf16(arith::fma(o, c, e * s));
  }
}

void hadamard(std::span<std::uint16_t> row) {
  std::vector<float> x = widened(row);
  for (std::size_t h = 1; h < x.size(); h *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  const float factor = arith::from_bits(0x3DB504F3U);
  for (std::size_t i = 0; i < x.size(); ++i) row[i] = arith::f32_to_bf16(x[i] * factor);
}

void quantise_e4m3(std::span<const std::uint16_t> row, int block, const Quantiser& how,
                   std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  const std::vector<float> x = widened(row);
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(block)) {
    const std::size_t count = std::min(x.size() - first, static_cast<std::size_t>(block));
    const BlockScale scale(std::span<const float>(x).subspan(first, count), arith::from_bits(0x38D1B717U),
                           448.0F, how);
    scales[first / static_cast<std::size_t>(block)] = scale.byte;
    for (std::size_t i = first; i < first + count; ++i) {
      const float value = scale.scaled(x[i]);
      // 464 lies halfway between 448 and the next code, which is NaN.
      codes[i] = !how.clamp && std::fabs(value) >= 464.0F ? std::uint8_t{0x7F} : arith::f32_to_e4m3(value);
    }
  }
}

void quantise_e2m1(std::span<const std::uint16_t> row, const Quantiser& how, std::span<std::uint8_t> codes,
                   std::span<std::uint8_t> scales) {
  const std::vector<float> x = widened(row);
  constexpr std::size_t kBlock = layout::kIndexFp4Block;
  for (std::size_t first = 0; first < x.size(); first += kBlock) {
    const BlockScale scale(std::span<const float>(x).subspan(first, kBlock), 0x1.8p-124F, 6.0F, how);
    scales[first / kBlock] = scale.byte;
    for (std::size_t i = first; i < first + kBlock; ++i) codes[i] = arith::f32_to_e2m1(scale.scaled(x[i]));
  }
}

std::vector<std::uint16_t> linear(const Matrix& matrix, std::int64_t first, std::int64_t count,
                                  std::span<const std::uint16_t> row, bool as_bf16) {
  const bool fp8 = matrix.format == Matrix::Format::fp8_block128;
  const Operand operand = operand_of(row, fp8 && !as_bf16);
  const std::int64_t blocks = (matrix.columns + 127) / 128;
  std::vector<std::uint16_t> out(static_cast<std::size_t>(count));
  for (std::int64_t n = first; n < first + count; ++n) {
    float sum = 0.0F;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float scale =
          fp8 ? arith::ue8m0_to_f32(matrix.scales[static_cast<std::size_t>(n / 128 * blocks + block)]) : 1.0F;
      const auto weight = [&](std::int64_t k) {
        const auto at = static_cast<std::size_t>(n * matrix.columns + k);
        if (!fp8) return arith::bf16_to_f32(matrix.bf16[at]);
        const float code = arith::e4m3_to_f32(matrix.codes[at]);
        return as_bf16 ? arith::bf16_to_f32(arith::f32_to_bf16(code * scale)) : code;
      };
      float part = 0.0F;
      for (std::int64_t k = block * 128; k < std::min((block + 1) * 128, matrix.columns); ++k)
        part = arith::fma(operand.values[static_cast<std::size_t>(k)], weight(k), part);
      const float factor = operand.scales.empty()
                               ? 1.0F
                               : arith::ue8m0_to_f32(operand.scales[static_cast<std::size_t>(block)]) * scale;
      sum = arith::fma(factor, part, sum);
    }
    out[static_cast<std::size_t>(n - first)] = arith::f32_to_bf16(sum);
  }
  return out;
}

void pool(std::span<const PoolRow> rows, std::span<float> pooled) {
  for (std::size_t channel = 0; channel < pooled.size(); ++channel) {
    float most = -std::numeric_limits<float>::infinity();
    for (const PoolRow& row : rows) most = row.score[channel] > most ? row.score[channel] : most;
    float sum = 0.0F;
    float total = 0.0F;
    for (const PoolRow& row : rows) {
      const float e = arith::exp(row.score[channel] - most);
      sum = sum + e;
      total = arith::fma(e, row.kv[channel], total);
    }
    pooled[channel] = total / sum;
  }
}

std::vector<float> decoded_kv_row(std::span<const std::byte> row) {
  std::vector<float> values(kHeadDim);
  for (std::size_t i = 0; i < kNopeDim; ++i) {
    const auto scale = static_cast<std::uint8_t>(row[layout::kKvValueBytes + i / layout::kKvBlock]);
    values[i] = arith::e4m3_to_f32(static_cast<std::uint8_t>(row[i])) * arith::ue8m0_to_f32(scale);
  }
  for (std::size_t i = 0; i < kRopeDim; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, row.data() + kNopeDim + 2 * i, sizeof(bits));
    values[kNopeDim + i] = arith::bf16_to_f32(bits);
  }
  return values;
}

}  // namespace dsv4::oracle::faults
