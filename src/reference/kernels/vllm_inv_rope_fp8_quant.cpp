#include "reference/kernels/vllm_inv_rope_fp8_quant.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "reference/kernels/block_scale.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::size_t kDim = 512;
constexpr std::size_t kBlock = 128;
constexpr std::size_t kBlocks = kDim / kBlock;

}  // namespace

VllmInverseRopeOutput vllm_inv_rope_fp8_quant(const VllmInverseRope& in) {
  const std::size_t tokens = in.positions.size();
  const auto groups = static_cast<std::size_t>(in.groups);
  const auto heads = static_cast<std::size_t>(in.heads_per_group);
  const auto padded = static_cast<std::size_t>(in.padded_tokens);
  VllmInverseRopeOutput out{std::vector<std::uint8_t>(groups * tokens * heads * kDim),
                            std::vector<float>(groups * heads * kBlocks * padded),
                            std::vector<std::uint32_t>(groups * heads * padded),
                            std::vector<float>(tokens * groups * heads * kDim)};
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* angles = in.cos_sin.data() + in.positions[t] * kRopeTableWidth;
    for (std::size_t h = 0; h < groups * heads; ++h) {
      const std::size_t group = h / heads;
      const std::size_t head = h % heads;
      std::array<float, kDim> row;
      for (std::size_t i = 0; i < kDim; ++i) {
        row[i] = arith::bf16_to_f32(in.o[(t * groups * heads + h) * kDim + i]);
      }
      rotate_tail(in.rotate, row.data(), kDim, angles);
      std::copy(row.begin(), row.end(), out.rotated.data() + (t * groups * heads + h) * kDim);
      std::uint8_t* codes = out.codes.data() + ((group * tokens + t) * heads + head) * kDim;
      for (std::size_t block = 0; block < kBlocks; ++block) {
        const float* x = row.data() + block * kBlock;
        const float e = scale_exponent(floored_amax({x, kBlock}, kFloorOutput) * kInverse448);
        const float scale = arith::hopper::ex2_ftz(e);
        for (std::size_t i = 0; i < kBlock; ++i) {
          codes[block * kBlock + i] = clamped_e4m3(arith::hopper::div_full(x[i], scale));
        }
        out.scales[((group * heads + head) * kBlocks + block) * padded + t] = scale;
        out.packed_scales[(group * heads + head) * padded + t] |= std::uint32_t{scale_byte(e)} << (8 * block);
      }
    }
  }
  return out;
}

}  // namespace dsv4::kernels
