/// Matrix products of docs/numerics.md section 6 on the device.
///
/// Operands are widened to f32 and turned over first, [K, rows], weights once and activations for each use: the
/// products then spend their time on multiply-adds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/device_memory.cuh"

namespace dsv4::gpu {

/// T rows of K values in their stored form: FP8 codes with one ue8m0 byte for each 128, or bf16.
struct Activations {
  const std::uint8_t* codes = nullptr;   ///< [T, K] e4m3
  const std::uint8_t* scales = nullptr;  ///< [T, K / 128] ue8m0
  const std::uint16_t* bf16 = nullptr;   ///< [T, K]; used when codes is null
};

/// An operand: value k of row r is wide[k * stride + r]. At least 256 floats behind the last one may be read.
struct WideOperand {
  float* wide = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;              ///< K
  std::int64_t stride = 0;               ///< a multiple of 4
  const std::uint8_t* scales = nullptr;  ///< FP8: ue8m0, [T, K / 128] or [ceil(N / 128), ceil(K / 128)]
};

/// Where the product goes: one rounding to bf16, or f32 as it is.
struct Product {
  std::uint16_t* bf16 = nullptr;
  float* f32 = nullptr;
  std::int64_t row_stride = 0;
};

/// How the values of a weight matrix come from its stored form.
enum class Widen : std::uint8_t {
  codes,            ///< e4m3 codes as numbers; the scales belong to the product
  bf16,
  scaled_to_bf16,   ///< bf16(rn(code * 2^e)) (wo_a)
};

/// `tokens` rows of `columns` values, in a buffer that the next call uses again.
WideOperand widen_rows(const Activations& x, std::int64_t tokens, std::int64_t columns, DeviceMemory& memory,
                       cudaStream_t stream);

/// Fills `matrix.wide` from `stored` [rows, columns] (codes or bf16 bits) and, for scaled_to_bf16, `scales`.
void widen_weights(const WideOperand& matrix, Widen form, const void* stored, const std::uint8_t* scales,
                   cudaStream_t stream);

/// Floats between two columns of an operand of so many rows, and floats to reserve for it.
std::int64_t wide_stride(std::int64_t rows);
std::size_t wide_floats(std::int64_t rows, std::int64_t columns);

/// out[t, n] for all rows t of `x` and n of `weights`. For each block of 128 along K: b = fold of fma from +0;
/// out = fma(s, b, out), s = rn(scale_x * scale_w) or 1.
void linear(const WideOperand& x, const WideOperand& weights, const Product& out, DeviceMemory& scratch,
            cudaStream_t stream);

/// The block-diagonal product of bf16 operands: rows of `x` (groups * K values) and of `weights` fall into `groups`
/// equal parts; part g of a row of x meets part g of the weight rows and gives part g of the output row.
void grouped_linear(const WideOperand& x, const WideOperand& weights, int groups, const Product& out,
                    DeviceMemory& scratch, cudaStream_t stream);

}  // namespace dsv4::gpu
