#include "prover.hpp"

namespace dsv4::prover {

const Prover& best() {
#if defined(DSV4_HAVE_V3)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return x86_64_v3();
#endif
  return baseline();
}

}  // namespace dsv4::prover
