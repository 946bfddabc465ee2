/// a * b + c of floats with one rounding, the same bits on every target. docs/numerics.md section 5.
#pragma once

#include "arith/round_odd.hpp"

namespace dsv4::arith {

/// Without a fused instruction: the product of two floats is exact in double, TwoSum gives the sum and what
/// it lost, rounding to odd keeps that loss visible to the one conversion to float. Infinities, NaN, signed
/// zeros and subnormals as IEEE 754 demands.
DSV4_FN float fma_software(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double shadow = sum - product;
  const double lost = (product - (sum - shadow)) + (addend - shadow);
  return static_cast<float>(round_to_odd(sum, lost));
}

/// One rounding: the machine's instruction where the target has it, fma_software otherwise.
DSV4_FN float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return fma_software(a, b, c);
#endif
}

/// The same for doubles; a library call on hosts compiled without the instruction, so not for their hot loops.
DSV4_FN double fma64(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

}  // namespace dsv4::arith
