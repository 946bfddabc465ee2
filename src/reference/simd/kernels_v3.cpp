// Kernels for x86-64-v3: AVX2 and FMA.
#define DSV4_ISA v3
#include "reference/simd/variant.hpp"

namespace dsv4::reference::simd {

const Kernels* v3_kernels() {
  return &v3::kTable;
}

}  // namespace dsv4::reference::simd
