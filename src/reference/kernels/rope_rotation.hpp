/// The rotation of one (even, odd) pair as compilers fuse it: in a sum of two products one is rounded, the
/// other goes into the fma. Which one differs between kernels that compute the same formula, and shows in the
/// last bit of a third of the float32 results. contracts/vllm.md section 1.5.
#pragma once

#include "arith/fma.hpp"

namespace dsv4::kernels {

struct RopePair {
  float even = 0;
  float odd = 0;
};

/// A way to rotate a pair by an angle given as cosine and sine.
using Rotate = RopePair (*)(RopePair x, float cosine, float sine);

/// Forward; both outputs fuse the product with the cosine (source: even * cos - odd * sin, odd * cos +
/// even * sin). Triton's compress kernels.
inline RopePair rotate_fused_cosine(RopePair x, float cosine, float sine) {
  return {arith::fma(x.even, cosine, -(x.odd * sine)), arith::fma(x.odd, cosine, x.even * sine)};
}

/// Forward; both outputs fuse the product with the even element (source: even * cos - odd * sin, even * sin +
/// odd * cos). The indexer query and the CUDA query norm + kv insert.
inline RopePair rotate_fused_even(RopePair x, float cosine, float sine) {
  return {arith::fma(x.even, cosine, -(x.odd * sine)), arith::fma(x.even, sine, x.odd * cosine)};
}

/// Inverse; both outputs fuse the product with the cosine. The output projection's quantiser.
inline RopePair rotate_back_fused_cosine(RopePair x, float cosine, float sine) {
  return {arith::fma(x.even, cosine, x.odd * sine), arith::fma(x.odd, cosine, -(x.even * sine))};
}

/// A row of the rotation table [positions, 64] float32: 32 cosines, then 32 sines.
inline constexpr int kRopeTableWidth = 64;
inline constexpr int kRopeTablePairs = 32;

/// Rotates the last 64 of `width` floats in place.
inline void rotate_tail(Rotate rotate, float* row, int width, const float* table_row) {
  float* tail = row + width - 2 * kRopeTablePairs;
  for (int i = 0; i < kRopeTablePairs; ++i) {
    const RopePair y = rotate({tail[2 * i], tail[2 * i + 1]}, table_row[i], table_row[kRopeTablePairs + i]);
    tail[2 * i] = y.even;
    tail[2 * i + 1] = y.odd;
  }
}

}  // namespace dsv4::kernels
