#include "reference/online_pool.hpp"

#include <algorithm>

#include "reference/simd/kernels.hpp"

namespace dsv4::reference {

void online_pool_update(int index, const float* kv, const float* score, std::int64_t d, float* max,
                        float* sum, float* weighted) {
  if (index == 0) {
    std::copy(score, score + d, max);
    std::fill(sum, sum + d, 1.0F);
    std::copy(kv, kv + d, weighted);
    return;
  }
  simd::kernels().online_update(kv, score, d, max, sum, weighted);
}

void online_pool_finish(const float* sum, const float* weighted, std::int64_t d, float* pooled) {
  for (std::int64_t c = 0; c < d; ++c) pooled[c] = weighted[c] / sum[c];
}

}  // namespace dsv4::reference
