#include "wide/product.hpp"

#include <algorithm>

#include "model/error.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

constexpr std::int64_t kTile = 128;   // outputs decoded at once
constexpr int kNormBlock = 128;

}  // namespace

Values decoded_rows(const Matrix& weights, std::int64_t first, std::int64_t count, bool to_bf16) {
  const std::int64_t columns = weights.columns;
  Values values(count, columns);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = first + i;
    if (weights.format == Matrix::Format::bf16) {
      for (std::int64_t j = 0; j < columns; ++j) {
        values(i, j) = bf16_value(weights.bf16[static_cast<std::size_t>(row * columns + j)]);
      }
      continue;
    }
    const std::int64_t blocks = (columns + 127) / 128;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const double scale = ue8m0_value(weights.scales[static_cast<std::size_t>(row / 128 * blocks + block)]);
      for (std::int64_t j = block * 128; j < std::min(columns, (block + 1) * 128); ++j) {
        const double value = e4m3_value(weights.codes[static_cast<std::size_t>(row * columns + j)]) * scale;
        values(i, j) = to_bf16 ? round_bf16(value) : value;
      }
    }
  }
  return values;
}

Balls product(const Balls& x, const Matrix& weights, std::int64_t first, std::int64_t count, bool to_bf16) {
  require(x.columns() == weights.columns, "a product of unequal inner lengths");
  Balls out(x.rows(), count);
  if (x.rows() == 0) return out;
  const std::vector<double> counts = product_counts(weights.columns);
  const Values x_norms = block_norms(x.value, kNormBlock, counts);
  const bool inexact = (x.radius.array() != 0).any();
  const double underflow = static_cast<double>(weights.columns + x_norms.cols()) * kTiny;
  const std::int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t begin = tile * kTile;
    const std::int64_t length = std::min(kTile, count - begin);
    const Values w = decoded_rows(weights, first + begin, length, to_bf16);
    out.value.middleCols(begin, length).noalias() = x.value * w.transpose();
    Values radius = x_norms * block_norms(w, kNormBlock, counts).transpose();
    // counts times u is at most 1e-4 here, so the second order of gamma is below one part in a thousand.
    radius = (radius * (kUnit * 1.001)).array() + underflow;
    if (inexact) radius += 1.001 * (x.radius * w.cwiseAbs().transpose());
    out.radius.middleCols(begin, length) = radius;
  }
  return out;
}

}  // namespace dsv4::wide
