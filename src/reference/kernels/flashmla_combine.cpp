#include <array>
#include <limits>

#include "arith/hopper/mufu.hpp"
#include "reference/kernels/flashmla_sparse_decode.hpp"

namespace dsv4::kernels {
namespace {

using arith::hopper::ex2_ftz;
using arith::hopper::lg2_ftz;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void flashmla_combine(const float* lse, std::int64_t lse_stride, const float* o, std::int64_t o_stride,
                      int pieces, const float* sink, std::uint16_t* out, float* out_lse) {
  float largest = -kInfinity;
  for (int i = 0; i < pieces; ++i) largest = device_max(largest, lse[i * lse_stride]);
  if (largest == -kInfinity) largest = 0.0F;
  // Lane l of a warp holds pieces l, l + 32, ...
  std::array<float, 32> lanes{};
  for (int i = 0; i < pieces; ++i) {
    float& lane = lanes[static_cast<std::size_t>(i % 32)];
    lane = ftz_add(lane, ex2_ftz(ftz_sub(lse[i * lse_stride], largest)));
  }
  const float sum = ftz_butterfly_sum(lanes, kWarpOffsets);
  float total = sum == 0.0F ? kInfinity : ftz_add(lg2_ftz(sum), largest);
  *out_lse = stored(ftz_mul(total, kLn2));
  if (sink != nullptr) {
    if (total != kInfinity) {
      total = ftz_add(total, lg2_ftz(ftz_add(1.0F, ex2_ftz(ftz_fma(*sink, kLog2E, -total)))));
    } else if (*sink != -kInfinity) {
      total = ftz_mul(*sink, kLog2E);
    }
  }
  std::array<float, kFlashDim> row{};
  for (int i = 0; i < pieces; ++i) {
    const float weight = ex2_ftz(ftz_sub(lse[i * lse_stride], total));
    for (std::size_t d = 0; d < row.size(); ++d)
      row[d] = ftz_fma(weight, o[i * o_stride + std::int64_t(d)], row[d]);
  }
  for (std::size_t d = 0; d < row.size(); ++d) out[d] = stored_bf16(row[d]);
}

}  // namespace dsv4::kernels
