/// exp of a float, correctly rounded for every input. docs/numerics.md section 7.
///
/// Two evaluations of the same bits, each carrying the value in one double up to the single rounding to float; tests
/// over every float prove both. exp_by_double takes no fused operations, so that all hosts compute the same
/// intermediate bits in vector loops without them; exp_by_fused_double takes half as many steps on a device.
#pragma once

#include "arith/bits.hpp"
#include "arith/fma.hpp"

namespace dsv4::arith {

/// Every input. Plain double arithmetic without fused operations, so that all machines compute the same
/// intermediate bits.
DSV4_FN float exp_by_double(float x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits behind the point: its product with k is exact
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  constexpr double kShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits

  // Beyond these bounds the result is 0 or infinity anyway; NaN passes through.
  const double wide = static_cast<double>(x);
  const double above = wide < -105.0 ? -105.0 : wide;
  const double value = above > 90.0 ? 90.0 : above;
  const double shifted = value * kLog2E + kShift;
  const double k = shifted - kShift;
  const double r = (value - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2; the first difference is exact

  // exp(r) = 1 + r + r^2 (1/2! + r/3! + ... + r^11/13!), the sum by halves: a short chain of dependent steps.
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double p01 = 1.0 / 2.0 + 1.0 / 6.0 * r;
  const double p23 = 1.0 / 24.0 + 1.0 / 120.0 * r;
  const double p45 = 1.0 / 720.0 + 1.0 / 5040.0 * r;
  const double p67 = 1.0 / 40320.0 + 1.0 / 362880.0 * r;
  const double p89 = 1.0 / 3628800.0 + 1.0 / 39916800.0 * r;
  const double p1011 = 1.0 / 479001600.0 + 1.0 / 6227020800.0 * r;
  const double low = p01 + p23 * r2;
  const double middle = p45 + p67 * r2;
  const double high = p89 + p1011 * r2;
  const double p = low + (middle + high * r4) * r4;

  const double scale = from_bits64((to_bits64(shifted) + 1023U) << 52);  // 2^k
  return static_cast<float>((1.0 + (r + r2 * p)) * scale);
}

/// Every input, by a polynomial of degree 10 nearest to exp on |r| <= ln(2) / 2 by relative error.
DSV4_FN float exp_by_fused_double(float x) {
  const float above = x < -105.0F ? -105.0F : x;
  const float value = above > 90.0F ? 90.0F : above;
  const double wide = static_cast<double>(value);
  const double shifted = fma64(wide, 0x1.71547652b82fep+0, 0x1.8p52);
  const double k = shifted - 0x1.8p52;
  const double r = fma64(k, -0x1.ef35793c76730p-45, fma64(k, -0x1.62e42fefa3800p-1, wide));
  double p = 0x1.270694313e9fap-22;
  p = fma64(p, r, 0x1.72e9257fe27edp-19);
  p = fma64(p, r, 0x1.a01b7d91d0d9cp-16);
  p = fma64(p, r, 0x1.a0198d4d36834p-13);
  p = fma64(p, r, 0x1.6c16c0c7abc40p-10);
  p = fma64(p, r, 0x1.11111125b79b8p-7);
  p = fma64(p, r, 0x1.555555558938dp-5);
  p = fma64(p, r, 0x1.55555555507adp-3);
  p = fma64(p, r, 0x1.ffffffffffed1p-2);
  p = fma64(p, r, 1.0);
  p = fma64(p, r, 1.0);
  return static_cast<float>(p * from_bits64((to_bits64(shifted) + 1023U) << 52));  // 2^k
}

/// Overflow gives +inf, exp(-inf) = +0, NaN gives NaN; subnormal results are kept.
DSV4_FN float exp(float x) {
#if defined(__CUDA_ARCH__)
  return exp_by_fused_double(x);
#else
  return exp_by_double(x);
#endif
}

}  // namespace dsv4::arith
