#include "reference/kernels/deepgemm_logit.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "arith/hopper/dot_matrix.hpp"
#include "model/error.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

void require_deepgemm_shape(int heads, int dim) {
  require(heads == 32 || heads == 64, "DeepGEMM logits: heads must be 32 or 64");
  require(dim == 32 || dim == 64 || dim == 128, "DeepGEMM logits: dim must be 32, 64 or 128");
}

void deepgemm_dots(const DeepgemmTile& tile, int heads, int dim, float* dots) {
  std::fill_n(dots, std::int64_t{tile.count} * heads, 0.0F);
  arith::hopper::matmul_e4m3(tile.keys, tile.query, dots, tile.count, heads, dim);
}

float deepgemm_logit(const float* dots, const float* weights, float key_scale, int heads,
                     const DeepgemmRules& rules) {
  // Lane l of a quad holds heads 8t + 2l and 8t + 2l + 1 and sums the two kinds apart.
  std::array<float, 4> lanes;
  for (int lane = 0; lane < 4; ++lane) {
    float sums[2];
    for (int p = 0; p < 2; ++p) {
      const auto value = [&](int t) { return device_max(dots[8 * t + 2 * lane + p], 0.0F); };
      const auto weight = [&](int t) { return weights[8 * t + 2 * lane + p]; };
      const int fused = rules.first_product_fused ? 0 : 1;
      float sum = arith::fma(value(fused), weight(fused), value(1 - fused) * weight(1 - fused));
      for (int t = 2; t < heads / 8; ++t) sum = arith::fma(value(t), weight(t), sum);
      sums[p] = sum;
    }
    const float sum = sums[0] + sums[1];
    lanes[static_cast<std::size_t>(lane)] = rules.scale_before_lanes ? sum * key_scale : sum;
  }
  const float sum = butterfly_sum(lanes, kQuadOffsets);
  return rules.scale_before_lanes ? sum : sum * key_scale;
}

}  // namespace dsv4::kernels
