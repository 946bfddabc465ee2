#include "wide/quantise.hpp"

#include <algorithm>
#include <cmath>

#include "model/layout.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

/// Farthest value that a code within the ball's reach has from the code of its centre.
double code_radius(BlockFormat format, Ball scaled) {
  if (!(scaled.radius > 0)) return 0;
  const double value = format.value(format.code(scaled.value));
  return std::max(std::fabs(format.value(format.code(scaled.value + scaled.radius)) - value),
                  std::fabs(format.value(format.code(scaled.value - scaled.radius)) - value));
}

struct Columns {
  Eigen::Index first, length;
};

/// One block whose scale is the float32 quotient s: codes of x * (1 / s), a float32 division and product.
void quantise_by_quotient(const Balls& x, Eigen::Index row, Columns columns, BlockFormat format, Ball floored,
                          Eigen::Index block, Eigen::Index row_width, Quantised& out) {
  const Ball scale = stepped(floored / Ball{format.largest(), 0});
  const Ball inverse = stepped(Ball{1, 0} / scale);
  out.quotient.set(row, block, scale);
  out.scale.set(row, block, scale);
  for (Eigen::Index j = columns.first; j < columns.first + columns.length; ++j) {
    const Ball scaled = stepped(x.at(row, j) * inverse);
    const std::uint8_t code = format.code(scaled.value);
    out.codes[static_cast<std::size_t>(row * row_width + j)] = code;
    out.scaled.set(row, j, scaled);
    out.dequantised.set(row, j, Ball{format.value(code), code_radius(format, scaled)} * scale);
  }
}

/// Quantises one block; see Quantised for what the radii say.
void quantise_block(const Balls& x, Eigen::Index row, Eigen::Index first, Eigen::Index length,
                    BlockFormat format, Eigen::Index block, Eigen::Index columns, Quantised& out) {
  double amax = 0;
  double amax_low = 0;
  double amax_high = 0;
  for (Eigen::Index j = first; j < first + length; ++j) {
    const double magnitude = std::fabs(x.value(row, j));
    const double radius = x.radius(row, j);
    amax = magnitude > amax ? magnitude : amax;  // NaN never wins
    amax_low = std::max(amax_low, magnitude - radius);
    amax_high = std::max(amax_high, magnitude + radius);
  }
  const double floored = std::max(amax, format.floor());
  const double high = std::max(amax_high, floored);
  const double low = std::min(std::max(amax_low, format.floor()), floored);
  if (format.f32_scale) {
    return quantise_by_quotient(x, row, {first, length}, format,
                                Ball{floored, std::max(high - floored, floored - low)}, block, columns, out);
  }
  const int e = scale_exponent(floored, format.largest());
  const int e_low = scale_exponent(low, format.largest());
  const int e_high = scale_exponent(high, format.largest());
  out.quotient.set(
      row, block,
      stepped(Ball{floored, std::max(high - floored, floored - low)} / Ball{format.largest(), 0}));
  out.scale.set(row, block,
                {power_of_two(e),
                 std::max(power_of_two(e_high) - power_of_two(e), power_of_two(e) - power_of_two(e_low))});
  out.scales[static_cast<std::size_t>(row * out.blocks + block)] = static_cast<std::uint8_t>(e + 127);

  const double down = power_of_two(-e);
  const double up = power_of_two(e);
  for (Eigen::Index j = first; j < first + length; ++j) {
    const Ball here = x.at(row, j);
    const double scaled = here.value * down;
    const std::uint8_t code = format.code(scaled);
    double radius = here.radius * down;
    double dequantised_radius = 0;
    if (radius > 0) {
      const double value = format.value(code);
      dequantised_radius = up * std::max(std::fabs(format.value(format.code(scaled + radius)) - value),
                                         std::fabs(format.value(format.code(scaled - radius)) - value));
    }
    if (e_low != e || e_high != e) {
      // Another engine may have taken a neighbouring scale. Its x * 2^-e' is then a factor away, and its
      // dequantised value is off by one rounding at each scale: 2^-4 (e4m3) or 2^-2 (e2m1) of |x|, or half a
      // subnormal step.
      const double reach = std::fabs(here.value) + here.radius;
      radius +=
          reach * std::max(std::fabs(power_of_two(-e_low) - down), std::fabs(power_of_two(-e_high) - down));
      const double share = format.fp4 ? 0.25 : 0.0625;
      const double step = power_of_two(e_high) * (format.fp4 ? 0.25 : 0x1p-10);
      dequantised_radius = here.radius + 2 * std::max(reach * share, step);
    }
    out.codes[static_cast<std::size_t>(row * columns + j)] = code;
    out.scaled.set(row, j, {scaled, radius});
    out.dequantised.set(row, j, {format.value(code) * up, dequantised_radius});
  }
}

}  // namespace

double BlockFormat::value(std::uint8_t code) const {
  return fp4 ? e2m1_value(code) : e4m3_value(code);
}
std::uint8_t BlockFormat::code(double x) const {
  if (fp4 && ties_down) return e2m1_code_ties_down(x);
  return fp4 ? e2m1_code(x) : e4m3_code(x);
}

BlockFormat index_format(const Profile& profile) {
  const bool fp4 = profile.get<IndexCache>() == IndexCache::fp4;
  BlockFormat format{fp4, fp4 ? 32 : 128};
  format.f32_scale = !fp4 && profile.get<IndexScale>() == IndexScale::f32;
  format.ties_down = fp4 && profile.get<Fp4Rule>() == Fp4Rule::ties_down;
  if (format.ties_down) format.least = BlockFormat::kFloorE4m3;
  return format;
}

BlockFormat kv_format(const Profile& profile) {
  BlockFormat format{false, layout::kKvBlock};
  // A floor of the quotient is a floor of amax 448 times as high.
  if (profile.get<KvCache>() == KvCache::e4m3_scale_floor) format.least = 448 * BlockFormat::kFloorE4m3;
  return format;
}
double scale_value(std::uint8_t scale) {
  return ue8m0_value(scale);
}

Quantised quantise(const Balls& x, Eigen::Index columns, BlockFormat format) {
  Quantised out;
  out.blocks = (columns + format.block - 1) / format.block;
  out.codes.resize(static_cast<std::size_t>(x.rows() * columns));
  out.scales.resize(static_cast<std::size_t>(x.rows() * out.blocks));
  out.scaled = Balls(x.rows(), columns);
  out.dequantised = Balls(x.rows(), columns);
  out.quotient = Balls(x.rows(), out.blocks);
  out.scale = Balls(x.rows(), out.blocks);
#pragma omp parallel for schedule(static)
  for (Eigen::Index row = 0; row < x.rows(); ++row) {
    for (Eigen::Index block = 0; block < out.blocks; ++block) {
      const Eigen::Index first = block * format.block;
      const Eigen::Index length = std::min<Eigen::Index>(format.block, columns - first);
      quantise_block(x, row, first, length, format, block, columns, out);
    }
  }
  return out;
}

}  // namespace dsv4::wide
