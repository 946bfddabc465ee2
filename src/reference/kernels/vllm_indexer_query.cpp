#include "reference/kernels/vllm_indexer_query.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "reference/kernels/block_scale.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::size_t kDim = kVllmIndexDim;
constexpr std::size_t kBlock = 32;
using Row = std::array<float, kDim>;

/// Row `r` (token r / heads), rotated and rounded to bf16, all bf16 values widened.
Row rotated_row(const VllmIndexerQuery& in, std::size_t r) {
  Row row;
  for (std::size_t i = 0; i < kDim; ++i) row[i] = arith::bf16_to_f32(in.q[r * kDim + i]);
  const std::int64_t position = in.positions[r / static_cast<std::size_t>(in.heads)];
  rotate_tail(in.rotate, row.data(), kVllmIndexDim, in.cos_sin.data() + position * kRopeTableWidth);
  for (std::size_t i = kDim - kRopeTableWidth; i < kDim; ++i) row[i] = through_bf16(row[i]);
  return row;
}

/// The row as bf16, which it is.
void keep(const Row& row, std::uint16_t* rotated) {
  std::transform(row.begin(), row.end(), rotated, stored_bf16);
}

}  // namespace

VllmIndexerQueryFp8 vllm_indexer_query_fp8(const VllmIndexerQuery& in) {
  const std::size_t rows = in.weights.size();
  VllmIndexerQueryFp8 out{std::vector<std::uint8_t>(rows * kDim), std::vector<float>(rows),
                          std::vector<float>(rows), std::vector<std::uint16_t>(rows * kDim)};
  for (std::size_t r = 0; r < rows; ++r) {
    const Row x = rotated_row(in, r);
    keep(x, out.rotated.data() + r * kDim);
    const float scale = arith::hopper::ex2_ftz(scale_exponent(floored_amax(x, kFloorFp8) / kE4m3Max));
    out.scales[r] = scale;
    for (std::size_t i = 0; i < kDim; ++i) out.codes[r * kDim + i] = arith::f32_to_e4m3(x[i] / scale);
    out.weights[r] = stored(in.weights[r] * scale * in.softmax_scale * in.head_scale);
  }
  return out;
}

VllmIndexerQueryMxfp4 vllm_indexer_query_mxfp4(const VllmIndexerQuery& in) {
  const std::size_t rows = in.weights.size();
  VllmIndexerQueryMxfp4 out{std::vector<std::uint8_t>(rows * kDim / 2),
                            std::vector<std::uint8_t>(rows * kDim / kBlock), std::vector<float>(rows),
                            std::vector<std::uint16_t>(rows * kDim)};
  for (std::size_t r = 0; r < rows; ++r) {
    const Row x = rotated_row(in, r);
    keep(x, out.rotated.data() + r * kDim);
    for (std::size_t block = 0; block < kDim / kBlock; ++block) {
      const float* values = x.data() + block * kBlock;
      const float unclamped = scale_exponent(floored_amax({values, kBlock}, kFloorMxfp4) * kInverse6);
      const float e = device_max(device_min(unclamped, 127.0F), -127.0F);
      const float inverse = arith::hopper::div_full(1.0F, arith::hopper::ex2_ftz(e));
      std::uint8_t* codes = out.codes.data() + (r * kDim + block * kBlock) / 2;
      for (std::size_t i = 0; i < kBlock; i += 2) {
        codes[i / 2] = packed_e2m1(values[i] * inverse, values[i + 1] * inverse);
      }
      out.scales[r * (kDim / kBlock) + block] = scale_byte(e);
    }
    out.weights[r] = stored(in.weights[r] * in.softmax_scale * in.head_scale);
  }
  return out;
}

}  // namespace dsv4::kernels
