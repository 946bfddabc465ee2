#include "reference/sums.hpp"

#include "arith/fma.hpp"

namespace dsv4::reference {
namespace {

constexpr int kLanes = 32;

float tree(float* lanes) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) lanes[lane] = lanes[lane] + lanes[lane + step];
  }
  return lanes[0];
}

}  // namespace

float dot32(const float* x, const float* y, std::int64_t n) {
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] = arith::fma(x[i], y[i], lanes[i % kLanes]);
  return tree(lanes);
}

float sum32(const float* x, std::int64_t n) {
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] + x[i];
  return tree(lanes);
}

}  // namespace dsv4::reference
