#include <cmath>

#include "gpu/check.cuh"
#include "gpu/row_device.cuh"
#include "model/error.hpp"

namespace dsv4::gpu {
namespace {

constexpr int kWarps = 4;  // a block

unsigned warp_blocks(std::int64_t rows) { return static_cast<unsigned>((rows + kWarps - 1) / kWarps); }
unsigned thread_blocks(std::int64_t items) { return static_cast<unsigned>((items + 255) / 256); }

__device__ std::int64_t warp_row() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}
__device__ int lane() { return threadIdx.x % 32; }

__global__ void rms_norm_kernel(const std::uint16_t* x, const std::uint16_t* weight, std::uint16_t* y,
                                std::int64_t rows, int n, float eps) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  x += row * n;
  y += row * n;
  float a = 0.0F;
  for (int i = lane(); i < n; i += 32) {
    const float v = arith::bf16_to_f32(x[i]);
    a = arith::fma(v, v, a);
  }
  const float mean = __fdiv_rn(warp_tree(a), static_cast<float>(n));
  const float g = reciprocal_root(mean + eps);
  for (int i = lane(); i < n; i += 32) {
    float v = arith::bf16_to_f32(x[i]) * g;
    if (weight != nullptr) v = v * arith::bf16_to_f32(weight[i]);
    y[i] = arith::f32_to_bf16(v);
  }
}

__global__ void head_norm_bf16_kernel(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, float eps) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  x += row * kHeadDim;
  y += row * kHeadDim;
  float a = 0.0F;
  for (int i = lane(); i < kHeadDim; i += 32) {
    const float v = arith::bf16_to_f32(x[i]);
    a = a + round_bf16(v * v);
  }
  const float mean = round_bf16(__fdiv_rn(warp_tree(a), static_cast<float>(kHeadDim)));
  const float g = round_bf16(reciprocal_root(round_bf16(mean + eps)));
  for (int i = lane(); i < kHeadDim; i += 32) y[i] = arith::f32_to_bf16(arith::bf16_to_f32(x[i]) * g);
}

__global__ void quantise_e4m3_kernel(const std::uint16_t* x, std::int64_t row_stride, std::int64_t rows,
                                     int blocks, int block, std::uint8_t* codes, std::int64_t code_stride,
                                     std::uint8_t* scales, std::int64_t scale_stride) {
  const std::int64_t item = warp_row();
  if (item >= rows * blocks) return;
  const std::int64_t row = item / blocks;
  const int b = static_cast<int>(item % blocks);
  x += row * row_stride + b * block;
  codes += row * code_stride + b * block;
  float amax = 0.0F;
  for (int i = lane(); i < block; i += 32) {
    amax = larger(amax, fabsf(arith::bf16_to_f32(x[i])));
  }
  const std::uint8_t scale = block_scale(amax, kAmaxFloorE4m3, 448.0F);
  const float inverse = arith::ue8m0_inverse(scale);
  for (int i = lane(); i < block; i += 32) codes[i] = arith::f32_to_e4m3(arith::bf16_to_f32(x[i]) * inverse);
  if (lane() == 0) scales[row * scale_stride + b] = scale;
}

__global__ void quantise_e2m1_kernel(const std::uint16_t* x, std::int64_t blocks, std::uint8_t* codes,
                                     std::uint8_t* scales) {
  const std::int64_t block = warp_row();
  if (block >= blocks) return;
  const float v = arith::bf16_to_f32(x[block * 32 + lane()]);
  const std::uint8_t scale = block_scale(larger(0.0F, fabsf(v)), kAmaxFloorE2m1, 6.0F);
  codes[block * 32 + lane()] = arith::f32_to_e2m1(v * arith::ue8m0_inverse(scale));
  if (lane() == 0) scales[block] = scale;
}

__global__ void rope_table_kernel(const std::int32_t* positions, std::int64_t rows, Frequencies table,
                                  float* cosines, float* sines) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * (kRopeDim / 2)) return;
  const float angle = static_cast<float>(positions[i / (kRopeDim / 2)]) * table.f[i % (kRopeDim / 2)];
  const arith::SinCos turn = arith::sin_cos(angle);
  cosines[i] = turn.cos;
  sines[i] = turn.sin;
}

/// One thread a pair of dimensions; pairs before the rotated part are copied.
__global__ void rope_kernel(const std::uint16_t* x, std::uint16_t* y, std::int64_t pairs, int heads, int width,
                            const float* cosines, const float* sines, bool inverse) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  const int pairs_a_head = width / 2;
  const std::int64_t head = i / pairs_a_head;
  const int pair = static_cast<int>(i % pairs_a_head) - (width - kRopeDim) / 2;
  if (pair < 0) {
    y[2 * i] = x[2 * i];
    y[2 * i + 1] = x[2 * i + 1];
    return;
  }
  const float c = cosines[head / heads * (kRopeDim / 2) + pair];
  const float s = sines[head / heads * (kRopeDim / 2) + pair];
  const float e = arith::bf16_to_f32(x[2 * i]);
  const float o = arith::bf16_to_f32(x[2 * i + 1]);
  const float os = o * s;
  const float es = e * s;
  y[2 * i] = arith::f32_to_bf16(arith::fma(e, c, inverse ? os : -os));
  y[2 * i + 1] = arith::f32_to_bf16(arith::fma(o, c, inverse ? -es : es));
}

__global__ void hadamard_kernel(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows) {
  const std::int64_t row = warp_row();
  if (row >= rows) return;
  float v[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) v[j] = arith::bf16_to_f32(x[row * kIndexDim + lane() + 32 * j]);
  hadamard_row(v, lane());
#pragma unroll
  for (int j = 0; j < 4; ++j) y[row * kIndexDim + lane() + 32 * j] = arith::f32_to_bf16(v[j]);
}

__global__ void add_bf16_kernel(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = arith::f32_to_bf16(arith::bf16_to_f32(a[i]) + arith::bf16_to_f32(b[i]));
}

}  // namespace

void rms_norm(const std::uint16_t* x, const std::uint16_t* weight, std::uint16_t* y, std::int64_t rows, int n,
              float eps, cudaStream_t stream) {
  if (rows == 0) return;
  rms_norm_kernel<<<warp_blocks(rows), 32 * kWarps, 0, stream>>>(x, weight, y, rows, n, eps);
  DSV4_LAUNCHED("rms_norm_kernel");
}

void head_norm_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, float eps, cudaStream_t stream) {
  if (rows == 0) return;
  head_norm_bf16_kernel<<<warp_blocks(rows), 32 * kWarps, 0, stream>>>(x, y, rows, eps);
  DSV4_LAUNCHED("head_norm_bf16_kernel");
}

void quantise_e4m3(const std::uint16_t* x, std::int64_t row_stride, std::int64_t rows, int columns, int block,
                   std::uint8_t* codes, std::int64_t code_stride, std::uint8_t* scales,
                   std::int64_t scale_stride, cudaStream_t stream) {
  if (rows == 0) return;
  require(columns % block == 0, "quantise_e4m3: columns are not whole blocks");
  const int blocks = columns / block;
  quantise_e4m3_kernel<<<warp_blocks(rows * blocks), 32 * kWarps, 0, stream>>>(x, row_stride, rows, blocks, block,
                                                                              codes, code_stride, scales, scale_stride);
  DSV4_LAUNCHED("quantise_e4m3_kernel");
}

void quantise_e2m1(const std::uint16_t* x, std::int64_t rows, int columns, std::uint8_t* codes,
                   std::uint8_t* scales, cudaStream_t stream) {
  if (rows == 0) return;
  require(columns % 32 == 0, "quantise_e2m1: columns are not whole blocks");
  const std::int64_t blocks = rows * (columns / 32);
  quantise_e2m1_kernel<<<warp_blocks(blocks), 32 * kWarps, 0, stream>>>(x, blocks, codes, scales);
  DSV4_LAUNCHED("quantise_e2m1_kernel");
}

Frequencies rope_frequencies(const Geometry& geometry, LayerKind kind) {
  Frequencies table;
  float(&frequencies)[kRopeDim / 2] = table.f;
  const bool yarn = has_compressor(kind);
  double root = yarn ? geometry.compress_rope_theta : geometry.rope_theta;
  for (int i = 0; i < 5; ++i) root = std::sqrt(root);
  double power = 1.0;
  for (float& f : frequencies) {
    f = 1.0F / static_cast<float>(power);
    power = power * root;
  }
  if (!yarn) return table;

  const auto bound = [&](double rotations) {
    return kRopeDim * std::log(static_cast<double>(geometry.yarn_original) / (2.0 * M_PI * rotations)) /
           (2.0 * std::log(geometry.compress_rope_theta));
  };
  const double low_exact = bound(geometry.beta_fast);
  const double high_exact = bound(geometry.beta_slow);
  for (const double value : {low_exact, high_exact}) {
    if (std::fabs(value - std::nearbyint(value)) < 1e-6) {
      throw UsageError("YaRN bound " + std::to_string(value) + " lies within 1e-6 of an integer");
    }
  }
  const auto low = static_cast<float>(std::fmax(std::floor(low_exact), 0.0));
  const auto high = static_cast<float>(std::fmin(std::ceil(high_exact), kRopeDim - 1.0));
  const float span = high - low;
  const auto factor = static_cast<float>(geometry.yarn_factor);
  for (int i = 0; i < kRopeDim / 2; ++i) {
    const float ramp = (static_cast<float>(i) - low) / span;
    const float raised = ramp > 0.0F ? ramp : 0.0F;
    const float u = raised < 1.0F ? raised : 1.0F;
    const float m = 1.0F - u;
    const float f = frequencies[i];
    const float slow = (f / factor) * (1.0F - m);
    const float fast = f * m;
    frequencies[i] = slow + fast;
  }
  return table;
}

void rope_table(const std::int32_t* positions, std::int64_t rows, const Frequencies& frequencies, float* cosines,
                float* sines, cudaStream_t stream) {
  if (rows == 0) return;
  rope_table_kernel<<<thread_blocks(rows * (kRopeDim / 2)), 256, 0, stream>>>(positions, rows, frequencies, cosines,
                                                                             sines);
  DSV4_LAUNCHED("rope_table_kernel");
}

void rope(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, int heads, int width, const float* cosines,
          const float* sines, bool inverse, cudaStream_t stream) {
  if (rows == 0) return;
  const std::int64_t pairs = rows * heads * (width / 2);
  rope_kernel<<<thread_blocks(pairs), 256, 0, stream>>>(x, y, pairs, heads, width, cosines, sines, inverse);
  DSV4_LAUNCHED("rope_kernel");
}

void hadamard(const std::uint16_t* x, std::uint16_t* y, std::int64_t rows, cudaStream_t stream) {
  if (rows == 0) return;
  hadamard_kernel<<<warp_blocks(rows), 32 * kWarps, 0, stream>>>(x, y, rows);
  DSV4_LAUNCHED("hadamard_kernel");
}

void add_bf16(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* y, std::int64_t n,
              cudaStream_t stream) {
  if (n == 0) return;
  add_bf16_kernel<<<thread_blocks(n), 256, 0, stream>>>(a, b, y, n);
  DSV4_LAUNCHED("add_bf16_kernel");
}

}  // namespace dsv4::gpu
