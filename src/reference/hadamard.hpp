/// The 128-wide orthonormal Hadamard rotation of index queries and keys. Implements section 10.
#pragma once

#include <cstdint>

namespace dsv4::reference {

/// For h = 1, 2, 4, ..., 64: (a, b) = (a + b, a - b) for each pair (i, i + h); then times 0x3DB504F3; then
/// bf16. [128] bf16 in and out; `in` and `out` may be the same.
void hadamard128(const std::uint16_t* in, std::uint16_t* out);

/// In place on f32 values, without the rounding to bf16 (axis index_row).
void hadamard128(float* x);

}  // namespace dsv4::reference
