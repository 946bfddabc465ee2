/// Row operations, one warp a row or block: RMS norm (docs/numerics.md 8), block quantiser (4), RoPE (9),
/// Hadamard (10). Launchers; shapes are in elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "model/geometry.hpp"
#include "model/profile.hpp"

namespace dsv4::gpu {

/// y = bf16 RMS norm of each of `rows` rows of n bf16 values; `weight` [n] bf16 or null.
void rms_norm(const std::uint16_t* x, const std::uint16_t* weight, std::uint16_t* y, std::int64_t rows, int n,
              float eps, cudaStream_t stream);

/// The `official` norm of a query head (section 18): every step rounded to bf16. Rows of 512.
void head_norm_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, float eps, cudaStream_t stream);

/// e4m3 block quantiser of `columns` values of each row, in blocks of `block` (64 or 128), one ue8m0 byte each.
void quantise_e4m3(const std::uint16_t* x, std::int64_t row_stride, std::int64_t rows, int columns, int block,
                   std::uint8_t* codes, std::int64_t code_stride, std::uint8_t* scales,
                   std::int64_t scale_stride, cudaStream_t stream);

/// e2m1 block quantiser, blocks of 32; one code a byte.
void quantise_e2m1(const std::uint16_t* x, std::int64_t rows, int columns, std::uint8_t* codes,
                   std::uint8_t* scales, cudaStream_t stream);

/// Rotation frequency of each pair.
struct Frequencies {
  float f[kRopeDim / 2];
};

/// The frequencies of a layer kind, made on the host in the order of section 9.
/// Throws UsageError if a YaRN bound lies within 1e-6 of an integer.
Frequencies rope_frequencies(const Geometry& geometry, LayerKind kind);

/// cos and sin of rn(f32(position) * f[i]) for each row, [rows, 32] each.
void rope_table(const std::int32_t* positions, std::int64_t rows, const Frequencies& frequencies, float* cosines,
                float* sines, cudaStream_t stream);

/// Rotates the last 64 of `width` values of rows [rows, heads, width]; the table has one row for each of
/// `rows`. In place is allowed. `inverse` turns back. bf16 in, bf16 out.
void rope(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, int heads, int width, const float* cosines,
          const float* sines, bool inverse, cudaStream_t stream);

/// Hadamard rotation of rows of 128 bf16 values; in place is allowed.
void hadamard(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, cudaStream_t stream);

/// chain (section 16): bf16(rn(a + b)) of n bf16 values.
void add_bf16(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* y, std::int64_t n,
              cudaStream_t stream);

}  // namespace dsv4::gpu
