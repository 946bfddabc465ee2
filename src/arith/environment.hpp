/// Checks the floating-point environment that every rule of docs/numerics.md presumes. Host only.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// True if this thread rounds to nearest even, keeps subnormal results and reads subnormal operands. A
/// library that was built for speed may have changed that for the whole process.
[[maybe_unused]] static inline bool environment_is_strict() {
  volatile float smallest_normal = 0x1p-126F;
  volatile float half = 0.5F;
  volatile float subnormal = from_bits(1U);
  volatile float big = 0x1p127F;
  volatile float one = 1.0F;
  volatile float half_step = 0x1p-24F;
  volatile float more = 0x1.8p-24F;
  const bool kept = to_bits(smallest_normal * half) == 0x00400000U;  // flush to zero gives 0
  const bool read = to_bits(subnormal * big) == 0x34800000U;         // denormals are zero gives 0
  const bool nearest = one + half_step == 1.0F && one + more > 1.0F && -one - half_step == -1.0F;
  return kept && read && nearest;
}

}  // namespace dsv4::arith
