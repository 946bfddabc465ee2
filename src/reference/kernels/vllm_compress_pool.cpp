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

/// The exponentials of a column, relative to its largest score.
std::array<float, kMaxRows> exponentials(std::span<const float> scores) {
  float peak = -std::numeric_limits<float>::infinity();
  for (const float s : scores) peak = device_max(peak, s);
  std::array<float, kMaxRows> e;
  for (std::size_t r = 0; r < scores.size(); ++r) e[r] = arith::hopper::ex2((scores[r] - peak) * kLog2E);
  return e;
}

void divide(std::array<float, kMaxRows>& e, std::size_t rows, float total) {
  for (std::size_t r = 0; r < rows; ++r) e[r] = arith::hopper::div_full(e[r], total);
}

}  // namespace

float vllm_pool_one_stage(std::span<const float> scores, std::span<const float> kv) {
  std::array<float, kMaxRows> p = exponentials(scores);
  divide(p, scores.size(), add_chain(p.data(), scores.size(), 1));
  return product_chain(p.data(), kv.data(), scores.size(), 1);
}

float vllm_pool_two_stage(std::span<const float> scores, std::span<const float> kv) {
  std::array<float, kMaxRows> p = exponentials(scores);
  divide(p, scores.size(),
         add_tile([&](std::size_t r) { return add_chain(p.data() + r, kRowsPerThread, kRowStride); }));
  return add_tile(
      [&](std::size_t r) { return product_chain(p.data() + r, kv.data() + r, kRowsPerThread, kRowStride); });
}

}  // namespace dsv4::kernels
