/// The two orders in which the reference engine adds along a vector. Implements section 5.
///
/// dot32 and sum32 keep 32 lanes, all +0 at first: element i goes to lane i mod 32, elements ascending; then
/// a[l] = a[l] + a[l + s] for s = 16, 8, 4, 2, 1 and l < s. Every step rounds once. An empty sum is +0.
#pragma once

#include <cstdint>

namespace dsv4::reference {

/// Lane step: a = fma(x, y, a).
float dot32(const float* x, const float* y, std::int64_t n);

/// Lane step: a = a + x.
float sum32(const float* x, std::int64_t n);

}  // namespace dsv4::reference
