#include "reference/online_pool.hpp"

#include <limits>

#include "arith/exp.hpp"
#include "arith/fma.hpp"

namespace dsv4::reference {

void online_pool_update(int index, const float* kv, const float* score, std::int64_t d, float* max,
                        float* sum, float* weighted) {
  for (std::int64_t c = 0; c < d; ++c) {
    if (index == 0) {
      max[c] = score[c];
      sum[c] = 1.0F;
      weighted[c] = kv[c];
      continue;
    }
    // max(m, score) of section 2 starts from -inf: a NaN on either side loses to a number.
    const float m = max[c];
    const float least = -std::numeric_limits<float>::infinity();
    const float floored = m > least ? m : least;
    const float x = score[c] > floored ? score[c] : floored;
    const float f = arith::exp(m - x);
    const float g = arith::exp(score[c] - x);
    sum[c] = arith::fma(sum[c], f, g);
    weighted[c] = arith::fma(weighted[c], f, kv[c] * g);
    max[c] = x;
  }
}

void online_pool_finish(const float* sum, const float* weighted, std::int64_t d, float* pooled) {
  for (std::int64_t c = 0; c < d; ++c) pooled[c] = weighted[c] / sum[c];
}

}  // namespace dsv4::reference
