/// Rotations of a pair that no kernel of vLLM computes, though the formula is the same: tests show that the
/// recordings reject them.
#pragma once

#include "arith/fma.hpp"
#include "reference/kernels/rope_rotation.hpp"

namespace dsv4::peer {

using kernels::RopePair;

/// Both products rounded.
inline RopePair rotate_unfused(RopePair x, float c, float s) {
  return {x.even * c - x.odd * s, x.odd * c + x.even * s};
}
/// even' fuses the product with the sine; odd' that of the even or of the odd element.
inline RopePair rotate_fused_sine(RopePair x, float c, float s) {
  return {arith::fma(-x.odd, s, x.even * c), arith::fma(x.even, s, x.odd * c)};
}
inline RopePair rotate_fused_odd(RopePair x, float c, float s) {
  return {arith::fma(-x.odd, s, x.even * c), arith::fma(x.odd, c, x.even * s)};
}
/// The inverse rotation, both outputs fusing the product with the sine.
inline RopePair rotate_back_fused_sine(RopePair x, float c, float s) {
  return {arith::fma(x.odd, s, x.even * c), arith::fma(-x.even, s, x.odd * c)};
}

}  // namespace dsv4::peer
