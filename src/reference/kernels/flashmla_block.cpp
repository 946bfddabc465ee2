#include "reference/kernels/flashmla_block.hpp"

#include <algorithm>
#include <limits>

#include "arith/hopper/dot_matrix.hpp"
#include "arith/hopper/mufu.hpp"

namespace dsv4::kernels {
namespace {

using arith::hopper::ex2_ftz;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void FlashKeys::transpose() {
  for (std::size_t key = 0; key < kFlashBlock; ++key) {
    for (std::size_t d = 0; d < kFlashDim; ++d) columns[d * kFlashBlock + key] = rows[key * kFlashDim + d];
  }
}

void flash_scores(const std::uint16_t* q, int heads, const FlashKeys& keys, bool upper_dims_first,
                  FlashScores& scores) {
  scores.fill(0.0F);
  constexpr int kHalf = kFlashDim / 2;
  for (const int from : {upper_dims_first ? kHalf : 0, upper_dims_first ? 0 : kHalf}) {
    arith::hopper::matmul_bf16(q + from, keys.rows.data() + from, scores.data(), heads, kFlashBlock,
                               kHalf, kFlashDim, kFlashDim, kFlashBlock);
  }
  for (std::size_t key = 0; key < kFlashBlock; ++key) {
    if (keys.valid[key]) continue;
    for (std::size_t head = 0; head < std::size_t(heads); ++head) scores[head * kFlashBlock + key] = -kInfinity;
  }
}

float flash_max(const float* scores, float scale, float m) {
  float largest = -kInfinity;
  for (int key = 0; key < kFlashBlock; ++key) largest = device_max(largest, scores[key]);
  return device_max(ftz_mul(largest, scale), m);
}

void flash_exp(const float* scores, float scale, float m, FlashExponent exponent, float* p) {
  for (int key = 0; key < kFlashBlock; ++key) {
    const float x = exponent == FlashExponent::fused ? ftz_fma(scores[key], scale, -m)
                                                     : ftz_sub(ftz_mul(scores[key], scale), m);
    p[key] = ex2_ftz(x);
  }
}

void flash_add_row(const float* p, float rescale, FlashRowSum order, FlashLanes& lanes) {
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    float sum = 0;
    for (std::size_t t = 0; t < kFlashBlock / 8; ++t) {
      const float* pair = p + 8 * t + 2 * lane;
      sum = order == FlashRowSum::serial ? ftz_add(ftz_add(sum, pair[0]), pair[1])
                                         : ftz_add(sum, ftz_add(pair[0], pair[1]));
    }
    lanes[lane] = ftz_fma(lanes[lane], rescale, sum);
  }
}

float flash_row_sum(FlashLanes lanes) {
  return ftz_butterfly_sum(lanes, kQuadOffsets);
}

void flash_round(const float* p, std::uint16_t* rounded) {
  std::transform(p, p + kFlashBlock, rounded, stored_bf16);
}

void flash_values(const FlashProbabilities& p, int heads, const FlashKeys& keys, int first, int count,
                  float* o) {
  arith::hopper::matmul_bf16(p.data(), keys.columns.data() + std::ptrdiff_t{first} * kFlashBlock, o + first,
                             heads, count, kFlashBlock, kFlashBlock, kFlashBlock, kFlashDim);
}

int flash_live_heads(int first, int live) {
  return live == 0 ? kFlashBlock : std::clamp(live - first, 0, kFlashBlock);
}

float flash_output_scale(float sum, float sink, float m) {
  if (sum == 0.0F) return 0.0F;
  return arith::hopper::rcp_ftz(ftz_add(sum, ex2_ftz(ftz_sub(sink, m))));
}

float flash_sink(const float* sink) {
  return sink == nullptr ? -kInfinity : ftz_mul(*sink, kLog2E);
}

}  // namespace dsv4::kernels
