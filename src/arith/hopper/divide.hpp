/// The divisions that a compiler builds from rcp: div.full, div.approx and their flushing forms.
/// docs/hopper.md 3. Host and device; any NaN is 0x7FFFFFFF.
#pragma once

#include "arith/hopper/flushing.hpp"

namespace dsv4::arith::hopper {

/// div.full.f32: rn(a * rcp(b)); both times 2^-2 if |b| > 2^126, both times 2^24 if |b| < 2^-126.
DSV4_FN float div_full(float a, float b) {
  const std::uint32_t absolute = to_bits(b) & 0x7FFFFFFFU;
  float scale = 1.0F;
  if (absolute < 0x00800000U) scale = 0x1p24F;
  if (absolute > 0x7E800000U && absolute <= kInfinity) scale = 0.25F;
  return mul(a * scale, rcp_ftz(b * scale));
}
/// div.full.ftz.f32: only |b| > 2^126 is scaled.
DSV4_FN float div_full_ftz(float a, float b) {
  const std::uint32_t absolute = to_bits(b) & 0x7FFFFFFFU;
  const bool large = absolute > 0x7E800000U && absolute <= kInfinity;
  const float x = large ? mul_ftz(a, 0.25F) : a;
  const float y = large ? mul_ftz(b, 0.25F) : b;
  return mul_ftz(x, rcp_ftz(y));
}
/// div.approx.f32: only |b| < 2^-126 is scaled.
DSV4_FN float div_approx(float a, float b) {
  const std::uint32_t absolute = to_bits(b) & 0x7FFFFFFFU;
  const float scale = absolute < 0x00800000U ? 0x1p24F : 1.0F;
  return mul(a * scale, rcp_ftz(b * scale));
}
/// div.approx.ftz.f32: nothing is scaled, so |b| > 2^126 gives zero.
DSV4_FN float div_approx_ftz(float a, float b) {
  return mul_ftz(a, rcp_ftz(b));
}

}  // namespace dsv4::arith::hopper
