#include "reference/kernels/deepgemm_fp8_einsum.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "arith/hopper/dot_matrix.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

void deepgemm_fp8_einsum(const DeepgemmFp8Einsum& in, std::uint16_t* out) {
  const std::int64_t r_blocks = (in.r + in.kBlock - 1) / in.kBlock;
  const std::int64_t d_blocks = (in.d + in.kBlock - 1) / in.kBlock;
  // A unit of work: 128 columns of one head, all rows.
  const std::int64_t unit_size = in.b * in.kBlock;
  std::vector<float> all_dots(static_cast<std::size_t>(in.h * d_blocks * unit_size));
  std::vector<float> all_sums(all_dots.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t unit = 0; unit < in.h * d_blocks; ++unit) {
    const std::int64_t head = unit / d_blocks;
    const std::int64_t column = unit % d_blocks * in.kBlock;
    const std::int64_t width = std::min<std::int64_t>(in.kBlock, in.d - column);
    float* dots = all_dots.data() + unit * unit_size;
    float* sums = all_sums.data() + unit * unit_size;
    for (std::int64_t block = 0; block < r_blocks; ++block) {
      const std::int64_t from = block * in.kBlock;
      std::fill_n(dots, in.b * width, 0.0F);
      arith::hopper::matmul_e4m3(in.x + head * in.r + from, in.w + (head * in.d + column) * in.r + from, dots,
                                 in.b, width, std::min<std::int64_t>(in.kBlock, in.r - from), in.h * in.r,
                                 in.r, width);
      for (std::int64_t i = 0; i < in.b * width; ++i) {
        const std::int64_t row = i / width * in.h + head;
        const float scale = in.x_scales[row * r_blocks + block] * in.w_scales[unit * r_blocks + block];
        sums[i] = in.rules.promotion_fused ? arith::fma(scale, dots[i], sums[i]) : sums[i] + scale * dots[i];
      }
    }
    for (std::int64_t i = 0; i < in.b * width; ++i) {
      const std::int64_t row = i / width * in.h + head;
      out[row * in.d + column + i % width] = stored_bf16(sums[i]);
    }
  }
}

}  // namespace dsv4::kernels
