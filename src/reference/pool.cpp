#include "reference/pool.hpp"

#include <limits>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/exp.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {

void pool_window(std::span<const PoolRow> rows, std::int64_t d, float* pooled) {
  std::vector<const float*> pointers(2 * rows.size());
  const float** const kv = pointers.data();
  const float** const score = kv + rows.size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    kv[r] = rows[r].kv;
    score[r] = rows[r].score;
  }
  simd::kernels().pool(kv, score, static_cast<std::int64_t>(rows.size()), d, pooled);
}

namespace {

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

}  // namespace

void pool_window_bf16(std::span<const PoolRow> rows, std::int64_t d, float* pooled) {
  std::vector<float> e(rows.size());
  for (std::int64_t c = 0; c < d; ++c) {
    float m = -std::numeric_limits<float>::infinity();
    for (const PoolRow& row : rows) m = row.score[c] > m ? row.score[c] : m;
    float den = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      e[r] = arith::exp(rows[r].score[c] - m);
      den = den + e[r];
    }
    float sum = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      sum = sum + to_bf16_value(to_bf16_value(e[r] / den) * rows[r].kv[c]);
    }
    pooled[c] = to_bf16_value(sum);
  }
}

}  // namespace dsv4::reference
