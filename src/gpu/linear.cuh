/// Matrix products of docs/numerics.md section 6 on the device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/device_memory.cuh"

namespace dsv4::gpu {

/// The left operand: T rows of K values, FP8 codes with one ue8m0 byte for each 128, or bf16.
struct Activations {
  const std::uint8_t* codes = nullptr;   ///< [T, K] e4m3
  const std::uint8_t* scales = nullptr;  ///< [T, K / 128] ue8m0
  const std::uint16_t* bf16 = nullptr;   ///< [T, row_stride]; used when codes is null
  std::int64_t row_stride = 0;           ///< elements between rows of bf16
};

/// A weight matrix [N, K] on the device in its stored form.
struct DeviceMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint8_t* codes = nullptr;   ///< [N, K] e4m3, or null
  std::uint8_t* scales = nullptr;  ///< [ceil(N / 128), ceil(K / 128)] ue8m0, or null
  std::uint16_t* bf16 = nullptr;   ///< [N, K], or null
};

/// Where the product goes: one rounding to bf16, or f32 as it is.
struct Product {
  std::uint16_t* bf16 = nullptr;
  float* f32 = nullptr;
  std::int64_t row_stride = 0;
};

/// out[t, n] for t < T and all n of rows [first_row, first_row + rows) of `weights`, columns 0 .. K.
/// For each block of 128 along K: b = fold of fma from +0; out = fma(s, b, out), s = rn(scale_x * scale_w) or 1.
void linear(const Activations& x, std::int64_t tokens, const DeviceMatrix& weights, std::int64_t first_row,
            std::int64_t rows, const Product& out, DeviceMemory& scratch, cudaStream_t stream);

/// Fills `matrix.bf16` with bf16(rn(code * 2^e)) of its codes and scales (wo_a, section 6).
void dequantise(const DeviceMatrix& matrix, cudaStream_t stream);

}  // namespace dsv4::gpu
