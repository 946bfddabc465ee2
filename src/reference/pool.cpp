#include "reference/pool.hpp"

#include <limits>

#include "arith/exp.hpp"
#include "arith/fma.hpp"

namespace dsv4::reference {

void pool_window(std::span<const PoolRow> rows, std::int64_t d, float* pooled) {
  for (std::int64_t c = 0; c < d; ++c) {
    float m = -std::numeric_limits<float>::infinity();
    for (const PoolRow& row : rows) m = row.score[c] > m ? row.score[c] : m;
    float den = 0;
    float acc = 0;
    for (const PoolRow& row : rows) {
      const float e = arith::exp(row.score[c] - m);
      den = den + e;
      acc = arith::fma(e, row.kv[c], acc);
    }
    pooled[c] = acc / den;
  }
}

}  // namespace dsv4::reference
