// Kernels for the instruction set that the whole project is built for.
#define DSV4_ISA generic
#include "reference/simd/variant.hpp"

namespace dsv4::reference::simd {

const Kernels* generic_kernels() {
  return &generic::kTable;
}

}  // namespace dsv4::reference::simd
