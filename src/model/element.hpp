/// One element of a tensor as bits, and the number they stand for (docs/numerics.md section 3). For reports,
/// comparisons and statistics; engines convert by themselves.
#pragma once

#include <cstdint>

#include "model/tensor.hpp"

namespace dsv4 {

/// Raw bits of element `index`, zero extended.
std::uint64_t load_bits(const Tensor& tensor, std::int64_t index);

/// The number that the bits stand for, exact in float64; integers as they are, float4 one code a byte.
double decode(DType dtype, std::uint64_t bits);

}  // namespace dsv4
