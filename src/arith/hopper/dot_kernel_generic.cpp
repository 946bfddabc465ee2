#define DSV4_ISA generic
#include "arith/hopper/dot_kernel.hpp"

namespace dsv4::arith::hopper {

const DotKernels* dot_table_generic() {
  return &generic::kTable;
}

}  // namespace dsv4::arith::hopper
