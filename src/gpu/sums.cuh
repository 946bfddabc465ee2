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

/// The same tree inside one thread, for N sums at once. Lane sums come in bit-reversed order 0, 16, 8, 24, ...
/// from `lane(l, out)`; each finished pair is added as a binary counter carries, which is the tree of section 5.
/// `before_group(i)` is called before each of the eight groups of four lanes; groups 0..3 hold the even lanes.
template <int N, class LaneSums, class BeforeGroup>
__device__ __forceinline__ void thread_tree(LaneSums lane, BeforeGroup before_group, float (&total)[N]) {
  float low[N], middle[N], high[N];
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const int l = ((i & 1) << 2) | (i & 2) | (i >> 2);  // 0, 4, 2, 6, 1, 5, 3, 7
    before_group(i);
    float a[N], b[N], c[N];
    lane(l, a);
    lane(l + 16, b);
#pragma unroll
    for (int n = 0; n < N; ++n) a[n] = a[n] + b[n];
    lane(l + 8, b);
    lane(l + 24, c);
#pragma unroll
    for (int n = 0; n < N; ++n) a[n] = a[n] + (b[n] + c[n]);
    if ((i & 1) == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) low[n] = a[n];
    } else if ((i & 2) == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) middle[n] = low[n] + a[n];
    } else if ((i & 4) == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) high[n] = middle[n] + (low[n] + a[n]);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) total[n] = high[n] + (middle[n] + (low[n] + a[n]));
    }
  }
}

}  // namespace dsv4::gpu
