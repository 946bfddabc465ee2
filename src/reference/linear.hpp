/// Matrix products. Implements section 6 (and the operands named in section 20).
///
/// Output n of a token: out = +0; for each block of 128 inputs ascending, the last may be short: b = fold of
/// fma over the block from +0; out = fma(s, b, out). With FP8 weights and FP8 activations the operands are
/// the values of the codes and s = scale_a * scale_w (rounded once); otherwise s = 1, and FP8 weights are
/// first dequantised to bf16 (code * 2^e, rounded once).
///
/// Weights stay in their stored form and are decoded by tile. The work is spread over OpenMP threads by
/// independent outputs: the bits do not depend on the number of threads or tokens.
#pragma once

#include <cstdint>
#include <span>

#include "model/inputs.hpp"

namespace dsv4::reference {

/// Input rows [tokens, weights.columns]. Exactly one of `codes` (with `scales`) and `bf16` is set.
struct Activations {
  const std::uint8_t* codes = nullptr;   ///< e4m3
  const std::uint8_t* scales = nullptr;  ///< ue8m0 [tokens, ceil(columns / 128)]
  const std::uint16_t* bf16 = nullptr;
  std::int64_t stride = 0;        ///< elements from one row of codes or bf16 to the next; 0 = columns
  std::int64_t scale_stride = 0;  ///< the same for scales; 0 = ceil(columns / 128)
};

/// Rows of the weight matrix that are wanted, [first, first + count): a group of wo_a, for example.
struct OutputRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Every row of the matrix.
OutputRange all_outputs(const Matrix& weights);

/// out[t * out_stride + i] = output range.first + i of token t, f32 (not rounded further).
/// Throws UsageError for FP8 activations with weights stored as bf16, InternalError for a range outside the
/// matrix.
void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            float* out, std::int64_t out_stride);

/// The same, then one rounding to bf16.
void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            std::uint16_t* out, std::int64_t out_stride);

/// Every row of one of several matrices of the same width: out[t * weights.rows + i], f32.
struct WholeProduct {
  const Matrix* weights = nullptr;
  float* out = nullptr;
};

/// Several products of one input, which is decoded once for all of them.
void linear(std::span<const WholeProduct> products, const Activations& input, std::int64_t tokens);

}  // namespace dsv4::reference
