/// The canonical summation orders on the device (docs/numerics.md 5).
#pragma once

#include "arith/fma.hpp"

namespace dsv4::gpu {

/// The tree of section 5 over the 32 lanes of a warp: for s = 16, 8, 4, 2, 1: a[l] = rn(a[l] + a[l + s]), l < s.
/// Every lane receives a[0].
__device__ inline float warp_tree(float a) {
  for (int s = 16; s > 0; s /= 2) a = a + __shfl_down_sync(0xFFFFFFFFU, a, s);
  return __shfl_sync(0xFFFFFFFFU, a, 0);
}

/// max of section 2 over a warp; each lane brings its own max. The order is not observable.
__device__ inline float warp_max(float m) {
  for (int s = 16; s > 0; s /= 2) {
    const float x = __shfl_xor_sync(0xFFFFFFFFU, m, s);
    m = x > m ? x : m;
  }
  return m;
}

}  // namespace dsv4::gpu
