#include "reference/kernels/block_sum.hpp"

#include <array>
#include <cstddef>

#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kMaxWarps = 4;

}  // namespace

float triton_square_sum(std::span<const float> row, RowOwnership ownership) {
  const auto columns = static_cast<std::size_t>(ownership.columns);
  const auto warps = static_cast<std::size_t>(ownership.warps);
  const std::size_t stretch = kLanes * warps * columns;
  const auto at = [&](std::size_t i) { return i < row.size() ? row[i] : 0.0F; };
  std::array<float, kMaxWarps> partials{};
  for (std::size_t warp = 0; warp < warps; ++warp) {
    std::array<float, kLanes> lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t first = (warp * kLanes + lane) * columns;
      float chain = at(first + 1) * at(first + 1);
      chain = arith::fma(at(first), at(first), chain);
      for (std::size_t i = 2; i < columns; ++i) chain = arith::fma(at(first + i), at(first + i), chain);
      for (std::size_t start = first + stretch; start < row.size(); start += stretch) {
        for (std::size_t i = 0; i < columns; ++i) chain = arith::fma(at(start + i), at(start + i), chain);
      }
      lanes[lane] = chain;
    }
    partials[warp] = butterfly_sum(lanes, kWarpOffsets);
  }
  if (warps == 1) return partials[0];
  return butterfly_sum({partials.data(), warps}, {2, 1});
}

}  // namespace dsv4::kernels
