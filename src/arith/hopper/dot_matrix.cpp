#include "arith/hopper/dot_matrix.hpp"

#include <algorithm>

#include "arith/hopper/dot.hpp"

namespace dsv4::arith::hopper {

void matmul_bf16(const std::uint16_t* a, const std::uint16_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = c[i * c_stride + j];
      for (std::int64_t step = 0; step < k; step += 16) {
        std::uint16_t x[16] = {};
        std::uint16_t y[16] = {};
        std::copy_n(a + i * a_stride + step, std::min<std::int64_t>(16, k - step), x);
        std::copy_n(b + j * b_stride + step, std::min<std::int64_t>(16, k - step), y);
        sum = dot_accumulate_bf16(x, y, sum);
      }
      c[i * c_stride + j] = sum;
    }
  }
}

void matmul_e4m3(const std::uint8_t* a, const std::uint8_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = c[i * c_stride + j];
      for (std::int64_t step = 0; step < k; step += 32) {
        std::uint8_t x[32] = {};
        std::uint8_t y[32] = {};
        std::copy_n(a + i * a_stride + step, std::min<std::int64_t>(32, k - step), x);
        std::copy_n(b + j * b_stride + step, std::min<std::int64_t>(32, k - step), y);
        sum = dot_accumulate_e4m3(x, y, sum);
      }
      c[i * c_stride + j] = sum;
    }
  }
}

}  // namespace dsv4::arith::hopper
