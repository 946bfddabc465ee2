/// What dot_matrix.cpp hands to a vector kernel, and the kernels there are. Plain data: kernels are compiled
/// for instruction sets that the rest of the program may not use.
#pragma once

#include <cstdint>

namespace dsv4::arith::hopper {

/// Exponent of a zero: below that of any product, so that a zero never takes part in the maximum.
inline constexpr std::int32_t kZeroExponent = -1000;
inline constexpr int kMostLanes = 16;

/// A block of rows of a product; scratch memory for k rounded up to whole steps.
template <class Code>
struct DotTask {
  const Code* a;
  const Code* b;
  float* c;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t a_stride;
  std::int64_t b_stride;
  std::int64_t c_stride;
  float* row_significands;  ///< [m][k]
  std::int32_t* row_exponents;
  std::uint8_t* row_special;  ///< [m][steps]
  float* panel_significands;  ///< [k][kMostLanes]
  std::int32_t* panel_exponents;
  std::uint8_t* panel_special;  ///< [steps]
};

struct DotKernels {
  void (*bf16)(const DotTask<std::uint16_t>& task);
  void (*e4m3)(const DotTask<std::uint8_t>& task);
};

/// Kernels of this build; nullptr where this processor cannot run them.
const DotKernels* dot_kernels_generic();
const DotKernels* dot_kernels_v3();
const DotKernels* dot_kernels_v4();

}  // namespace dsv4::arith::hopper
