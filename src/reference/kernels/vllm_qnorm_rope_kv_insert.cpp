#include "reference/kernels/vllm_qnorm_rope_kv_insert.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "arith/hopper/mufu.hpp"
#include "reference/kernels/block_scale.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::size_t kDim = 512;
constexpr std::size_t kLanes = 32;
constexpr std::size_t kLaneColumns = kDim / kLanes;
constexpr std::size_t kCodes = 448;
constexpr std::size_t kBlock = 64;
using Row = std::array<float, kDim>;

Row widened(const std::uint16_t* x) {
  Row row;
  for (std::size_t i = 0; i < kDim; ++i) row[i] = arith::bf16_to_f32(x[i]);
  return row;
}

void query_row(const VllmQueryAndKv& in, const std::uint16_t* x, const float* angles, std::uint16_t* y) {
  Row row = widened(x);
  const float r = in.query_scale(row, in.eps);
  for (float& value : row) value = value * r;
  rotate_tail(in.rotate, row.data(), kDim, angles);
  for (std::size_t i = 0; i < kDim; ++i) y[i] = stored_bf16(row[i]);
}

/// fminf(fmaxf(x, -448), 448), then the conversion: a NaN becomes -448.
std::uint8_t code(float x) {
  return arith::is_nan_bits(arith::to_bits(x)) ? std::uint8_t{0xFE} : arith::f32_to_e4m3(x);
}

void kv_row(const VllmQueryAndKv& in, const std::uint16_t* x, const float* angles, std::uint8_t* values,
            std::uint8_t* scales) {
  Row row = widened(x);
  rotate_tail(in.rotate, row.data(), kDim, angles);
  for (float& value : row) value = through_bf16(value);
  for (std::size_t block = 0; block < kCodes / kBlock; ++block) {
    const float* values_in = row.data() + block * kBlock;
    const float e = scale_exponent(floored_amax({values_in, kBlock}, kFloorFp8) / kE4m3Max);
    const float inverse = arith::hopper::ex2(-e);
    for (std::size_t i = 0; i < kBlock; ++i) values[block * kBlock + i] = code(values_in[i] * inverse);
    scales[block] = scale_byte(e);
  }
  scales[kCodes / kBlock] = 0;
  for (std::size_t i = kCodes; i < kDim; ++i) {
    const std::uint16_t bits = stored_bf16(row[i]);
    std::memcpy(values + kCodes + 2 * (i - kCodes), &bits, sizeof bits);
  }
}

}  // namespace

float vllm_query_scale(std::span<const float> row, float eps) {
  std::array<float, kLanes> lanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    float chain = 0.0F;
    for (const float x : row.subspan(lane * kLaneColumns, kLaneColumns)) chain = arith::fma(x, x, chain);
    lanes[lane] = chain;
  }
  return arith::hopper::rsqrt(arith::fma(butterfly_sum(lanes, kWarpOffsets), 0x1p-9F, eps));
}

void vllm_qnorm_rope_kv_insert(const VllmQueryAndKv& in, const PageLayout& pages,
                               std::span<std::uint16_t> q_out, std::span<std::uint8_t> cache) {
  const auto heads = static_cast<std::size_t>(in.heads);
  const auto padded = static_cast<std::size_t>(in.padded_heads);
  for (std::size_t t = 0; t < in.positions.size(); ++t) {
    const float* angles = in.cos_sin.data() + in.positions[t] * kRopeTableWidth;
    for (std::size_t h = 0; h < padded; ++h) {
      std::uint16_t* y = q_out.data() + (t * padded + h) * kDim;
      if (h < heads)
        query_row(in, in.q.data() + (t * heads + h) * kDim, angles, y);
      else
        std::fill_n(y, kDim, std::uint16_t{0});
    }
    if (t >= in.slot_mapping.size() || in.slot_mapping[t] < 0) continue;
    kv_row(in, in.kv.data() + t * kDim, angles, cache.data() + pages.values_at(in.slot_mapping[t]),
           cache.data() + pages.scales_at(in.slot_mapping[t]));
  }
}

}  // namespace dsv4::kernels
