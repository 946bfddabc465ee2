/// One token of the online C128 recurrence (docs/numerics.md 12.5).
#pragma once

#include "arith/exp.hpp"
#include "arith/fma.hpp"

namespace dsv4::gpu {

struct OnlineState {
  float m, t, a;  ///< running max, sum, weighted kv
};

/// `i` is the position mod 128; `score` includes the APE.
__device__ inline OnlineState online_step(OnlineState s, int i, float kv, float score) {
  if (i == 0) return {score, 1.0F, kv};
  const float x = score > s.m ? score : s.m;
  const float f = arith::exp(s.m - x);
  const float g = arith::exp(score - x);
  return {x, arith::fma(s.t, f, g), arith::fma(s.a, f, kv * g)};
}

}  // namespace dsv4::gpu
