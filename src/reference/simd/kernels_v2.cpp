// Kernels for x86-64-v2: no fused instruction, fma in software.
#define DSV4_ISA v2
#include "reference/simd/variant.hpp"

namespace dsv4::reference::simd {

const Kernels* v2_kernels() {
  return &v2::kTable;
}

}  // namespace dsv4::reference::simd
