/// Matrix products as chains of tensor-core steps (dot.hpp), k ascending. Bit-identical to calling
/// dot_accumulate_bf16 / dot_accumulate_e4m3 in a loop; vectorised, one thread. docs/hopper.md 4.
#pragma once

#include <cstdint>

#include "arith/hopper/dot_task.hpp"

namespace dsv4::arith::hopper {

/// c[i * c_stride + j] = chain over k / 16 steps of a row i and b row j, starting from c. Strides in
/// elements; the last step of a k that is no multiple of 16 is filled with zeros. `kernels`: the best if not
/// named.
void matmul_bf16(const std::uint16_t* a, const std::uint16_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride,
                 const DotKernels* kernels = nullptr);

/// The same with e4m3 codes and steps of 32.
void matmul_e4m3(const std::uint8_t* a, const std::uint8_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride,
                 const DotKernels* kernels = nullptr);

/// Rows close together.
inline void matmul_bf16(const std::uint16_t* a, const std::uint16_t* b, float* c, std::int64_t m,
                        std::int64_t n, std::int64_t k) {
  matmul_bf16(a, b, c, m, n, k, k, k, n);
}
inline void matmul_e4m3(const std::uint8_t* a, const std::uint8_t* b, float* c, std::int64_t m,
                        std::int64_t n, std::int64_t k) {
  matmul_e4m3(a, b, c, m, n, k, k, k, n);
}

}  // namespace dsv4::arith::hopper
