#include "reference/kernels/vllm_compress_pool.hpp"

#include <array>
#include <cstddef>
#include <limits>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

constexpr std::size_t kMaxRows = 128;
/// The tile of the two-stage kernel: 4 warps of 4 row groups, 8 rows each.
constexpr std::size_t kWarps = 4;
constexpr std::size_t kGroups = 4;
constexpr std::size_t kRowsPerThread = 8;
constexpr std::size_t kRowStride = kWarps * kGroups;

float add_chain(const float* x, std::size_t count, std::size_t stride) {
  float sum = x[0];
  for (std::size_t i = 1; i < count; ++i) sum = sum + x[i * stride];
  return sum;
}

float product_chain(const float* p, const float* kv, std::size_t count, std::size_t stride) {
  float sum = arith::fma(p[0], kv[0], p[stride] * kv[stride]);
  for (std::size_t i = 2; i < count; ++i) sum = arith::fma(p[i * stride], kv[i * stride], sum);
  return sum;
}

/// `thread(first_row)` is the partial sum of the thread that owns first_row, first_row + 16, ...
template <class Thread>
float add_tile(Thread thread) {
  std::array<float, kWarps> warps;
  for (std::size_t w = 0; w < kWarps; ++w) {
    std::array<float, kGroups> groups;
    for (std::size_t g = 0; g < kGroups; ++g) groups[g] = thread(w * kGroups + g);
    warps[w] = butterfly_sum(groups, {2, 1});
  }
  return butterfly_sum(warps, {2, 1});
}

}  // namespace

float vllm_pool_column(std::span<const float> scores, std::span<const float> kv, PoolOrder order) {
  const std::size_t rows = scores.size();
  float peak = -std::numeric_limits<float>::infinity();
  for (const float s : scores) peak = device_max(peak, s);
  std::array<float, kMaxRows> p;
  for (std::size_t r = 0; r < rows; ++r) p[r] = arith::hopper::ex2((scores[r] - peak) * kLog2E);
  const float total =
      order == PoolOrder::one_stage
          ? add_chain(p.data(), rows, 1)
          : add_tile([&](std::size_t r) { return add_chain(p.data() + r, kRowsPerThread, kRowStride); });
  for (std::size_t r = 0; r < rows; ++r) p[r] = arith::hopper::div_full(p[r], total);
  if (order == PoolOrder::one_stage) return product_chain(p.data(), kv.data(), rows, 1);
  return add_tile(
      [&](std::size_t r) { return product_chain(p.data() + r, kv.data() + r, kRowsPerThread, kRowStride); });
}

}  // namespace dsv4::kernels
