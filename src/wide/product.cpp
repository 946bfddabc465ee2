#include "wide/product.hpp"

#include <algorithm>

#include "model/error.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

constexpr std::int64_t kTile = 128;  // outputs decoded at once
constexpr std::int64_t kFold = 128;  // terms of one fold (section 6)
constexpr std::int64_t kChunk = 16;  // terms between known partial sums; divides kFold

/// Within a chunk term i is part of every partial sum from its own on.
std::vector<double> chunk_counts(std::int64_t inner) {
  std::vector<double> counts(static_cast<std::size_t>(inner));
  for (std::int64_t i = 0; i < inner; ++i) {
    const std::int64_t end = std::min(inner, (i / kChunk + 1) * kChunk);
    counts[static_cast<std::size_t>(i)] = static_cast<double>(end - i);
  }
  return counts;
}

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
  const std::int64_t inner = weights.columns;
  Balls out(x.rows(), count);
  if (x.rows() == 0) return out;
  const std::vector<double> counts = chunk_counts(inner);
  const Values x_norms = block_norms(x.value, kChunk, counts);
  const bool inexact = (x.radius.array() != 0).any();
  const double underflow = static_cast<double>(inner + inner / kFold + 1) * kTiny;
  const std::int64_t tiles = (count + kTile - 1) / kTile;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t begin = tile * kTile;
    const std::int64_t length = std::min(kTile, count - begin);
    const Values w = decoded_rows(weights, first + begin, length, to_bf16);
    Values sums = Values::Zero(x.rows(), length);  // of all roundings' operands
    sums.noalias() += x_norms * block_norms(w, kChunk, counts).transpose();
    Values total = Values::Zero(x.rows(), length);
    Values fold(x.rows(), length);
    for (std::int64_t k = 0; k < inner; k += kChunk) {
      if (k % kFold == 0) fold.setZero();
      const std::int64_t terms = std::min(kChunk, inner - k);
      sums += static_cast<double>(terms) * fold.cwiseAbs();
      fold.noalias() += x.value.middleCols(k, terms) * w.middleCols(k, terms).transpose();
      if ((k + terms) % kFold != 0 && k + terms != inner) continue;
      total += fold;
      sums += total.cwiseAbs();
    }
    out.value.middleCols(begin, length) = total;
    // What the partial sums of the other engine are off by is below one part in a thousand of the bound.
    Values radius = (sums * (kUnit * 1.001)).array() + underflow;
    if (inexact) radius.noalias() += 1.001 * (x.radius * w.cwiseAbs().transpose());
    out.radius.middleCols(begin, length) = radius;
  }
  return out;
}

}  // namespace dsv4::wide
