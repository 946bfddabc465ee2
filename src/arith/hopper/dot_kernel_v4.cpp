#define DSV4_ISA v4
#include "arith/hopper/dot_kernel.hpp"

namespace dsv4::arith::hopper {

const DotKernels* dot_table_v4() {
  return &v4::kTable;
}

}  // namespace dsv4::arith::hopper
