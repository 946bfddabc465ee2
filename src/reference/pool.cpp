#include "reference/pool.hpp"

#include <vector>

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

}  // namespace dsv4::reference
