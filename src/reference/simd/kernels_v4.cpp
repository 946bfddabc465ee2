// Kernels for x86-64-v4: AVX-512.
#define DSV4_ISA v4
#include "reference/simd/variant.hpp"

namespace dsv4::reference::simd {

const Kernels* v4_kernels() {
  return &v4::kTable;
}

}  // namespace dsv4::reference::simd
