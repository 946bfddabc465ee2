#include "reference/hadamard.hpp"

#include "reference/simd/kernels.hpp"

namespace dsv4::reference {

void hadamard128(const std::uint16_t* in, std::uint16_t* out) {
  const simd::Kernels& kernels = simd::kernels();
  float x[simd::kIndexKeyDim];
  kernels.widen_bf16(in, simd::kIndexKeyDim, x);
  kernels.hadamard128(x);
  kernels.round_bf16(x, simd::kIndexKeyDim, out);
}

void hadamard128(float* x) {
  simd::kernels().hadamard128(x);
}

}  // namespace dsv4::reference
