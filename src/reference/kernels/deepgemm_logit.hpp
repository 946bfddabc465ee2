/// What DeepGEMM's two score kernels do with the dot products of one query token and one key.
/// docs/kernel-models.md, DeepGEMM. Plain IEEE, subnormals kept.
#pragma once

#include <cstdint>

namespace dsv4::kernels {

/// What the compiler chose (nvcc 13.0.88); another one may choose otherwise.
struct DeepgemmRules {
  /// Of a lane's first two products the first is fused, the second rounded. False: the other way round.
  bool first_product_fused = true;
  /// The key's scale multiplies each lane's sum. False: the sum over the lanes.
  bool scale_before_lanes = true;
};

/// Throws InternalError unless heads is 32 or 64 and dim 32, 64 or 128: what the kernels are built for.
void require_deepgemm_shape(int heads, int dim);

/// sum over heads of relu(dots[head]) * weights[head], times key_scale.
float deepgemm_logit(const float* dots, const float* weights, float key_scale, int heads,
                     const DeepgemmRules& rules);

/// One query token against some keys.
struct DeepgemmTile {
  static constexpr int kKeys = 64;
  const std::uint8_t* query = nullptr;  ///< e4m3 [heads, dim]
  const std::uint8_t* keys = nullptr;   ///< e4m3 [count, dim]
  int count = 0;                        ///< at most kKeys
};

/// The dot products of a tile as the tensor core accumulates them: [count, heads].
void deepgemm_dots(const DeepgemmTile& tile, int heads, int dim, float* dots);

}  // namespace dsv4::kernels
