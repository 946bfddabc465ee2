#include "reference/sums.hpp"

#include "reference/simd/kernels.hpp"

namespace dsv4::reference {

float dot32(const float* x, const float* y, std::int64_t n) {
  return simd::kernels().dot32(x, y, n);
}

float sum32(const float* x, std::int64_t n) {
  return simd::kernels().sum32(x, n);
}

}  // namespace dsv4::reference
