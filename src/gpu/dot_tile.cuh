/// Many dot32 at once (docs/numerics.md 5): a warp computes 16 rows x 32 keys, a thread 4 x 4 whole dots.
#pragma once

#include "arith/fma.hpp"
#include "gpu/sums.cuh"

namespace dsv4::gpu {

/// Shared-memory form of a vector of D floats: element l + 32 j at l * (D / 32) + j, so that the terms of a lane
/// lie side by side. Rows are D + 4 floats apart, which spreads eight rows over all banks.
template <int D>
struct LaneMajor {
  static constexpr int kTerms = D / 32;
  static constexpr int kStride = D + 4;
  __device__ static int at(int element) { return element % 32 * kTerms + element / 32; }
};

/// out[i][j] = dot32(a row first_a + 4 i, b row first_b + 8 j); kTerms terms of a lane ascending.
template <int D>
__device__ __forceinline__ void dot_tile(const float* a, const float* b, int first_a, int first_b, float (&out)[16]) {
  using Form = LaneMajor<D>;
  const auto lane_sums = [&](int lane, float(&sum)[16]) {
#pragma unroll
    for (int k = 0; k < 16; ++k) sum[k] = 0.0F;
#pragma unroll
    for (int term = 0; term < Form::kTerms; term += 4) {
      float4 x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = *reinterpret_cast<const float4*>(a + (first_a + 4 * i) * Form::kStride + lane * Form::kTerms + term);
        y[i] = *reinterpret_cast<const float4*>(b + (first_b + 8 * i) * Form::kStride + lane * Form::kTerms + term);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& s = sum[4 * i + j];
          s = arith::fma(x[i].x, y[j].x, s);
          s = arith::fma(x[i].y, y[j].y, s);
          s = arith::fma(x[i].z, y[j].z, s);
          s = arith::fma(x[i].w, y[j].w, s);
        }
      }
    }
  };
  thread_tree<16>(lane_sums, [](int) {}, out);
}

}  // namespace dsv4::gpu
