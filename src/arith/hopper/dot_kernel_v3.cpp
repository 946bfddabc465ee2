#define DSV4_ISA v3
#include "arith/hopper/dot_kernel.hpp"

namespace dsv4::arith::hopper {

const DotKernels* dot_table_v3() {
  return &v3::kTable;
}

}  // namespace dsv4::arith::hopper
