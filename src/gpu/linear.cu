#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/fma.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/check.cuh"
#include "gpu/linear.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kBlock = 128;  // of K, section 6
constexpr int kStep = 16;    // columns staged in shared memory at a time

/// What a kernel instance needs, by value.
struct Problem {
  Activations x;
  const std::uint8_t* w_codes;
  const std::uint8_t* w_scales;
  const std::uint16_t* w_bf16;
  std::int64_t tokens, rows, columns, first_row;
  Product out;
  float* blocks;  // [K blocks, tokens, rows]: block sums of a split product, or null
};

template <bool kFp8>
__device__ float x_at(const Problem& p, std::int64_t t, std::int64_t k) {
  if (t >= p.tokens || k >= p.columns) return 0.0F;
  if constexpr (kFp8) return arith::e4m3_to_f32(p.x.codes[t * p.columns + k]);
  return arith::bf16_to_f32(p.x.bf16[t * p.x.row_stride + k]);
}

template <bool kFp8>
__device__ float w_at(const Problem& p, std::int64_t n, std::int64_t k) {
  if (n >= p.rows || k >= p.columns) return 0.0F;
  const std::int64_t at = (p.first_row + n) * p.columns + k;
  if constexpr (kFp8) return arith::e4m3_to_f32(p.w_codes[at]);
  return arith::bf16_to_f32(p.w_bf16[at]);
}

template <bool kFp8>
__device__ float scale_at(const Problem& p, std::int64_t t, std::int64_t n, std::int64_t block) {
  if constexpr (!kFp8) return 1.0F;
  const std::int64_t blocks = (p.columns + kBlock - 1) / kBlock;
  return arith::ue8m0_to_f32(p.x.scales[t * blocks + block]) *
         arith::ue8m0_to_f32(p.w_scales[(p.first_row + n) / kBlock * blocks + block]);
}

__device__ void store(const Problem& p, std::int64_t t, std::int64_t n, float value) {
  if (p.out.f32 != nullptr) {
    p.out.f32[t * p.out.row_stride + n] = value;
  } else {
    p.out.bf16[t * p.out.row_stride + n] = arith::f32_to_bf16(value);
  }
}

/// A tile of BM tokens by BN outputs, TM x TN outputs a thread. Every output is one chain in the canonical
/// order: padding columns of a short last block are products +0 * +0 on a finished sum, left out by the bound.
/// With `blocks` set, grid.z is a block of K and its sum goes there instead.
template <int BM, int BN, int TM, int TN, bool kFp8>
__global__ void __launch_bounds__((BM / TM) * (BN / TN)) tile_kernel(Problem p) {
  constexpr int kThreads = (BM / TM) * (BN / TN);
  __shared__ float xs[kStep][BM + 4];
  __shared__ float ws[kStep][BN + 4];
  const std::int64_t t0 = static_cast<std::int64_t>(blockIdx.y) * BM;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) * BN;
  const int ty = threadIdx.x / (BN / TN);
  const int tx = threadIdx.x % (BN / TN);
  const std::int64_t all_blocks = (p.columns + kBlock - 1) / kBlock;
  const std::int64_t first = p.blocks != nullptr ? blockIdx.z : 0;
  const std::int64_t last = p.blocks != nullptr ? first + 1 : all_blocks;

  float out[TM][TN] = {};
  for (std::int64_t block = first; block < last; ++block) {
    float sum[TM][TN] = {};
    const std::int64_t k_end = min((block + 1) * kBlock, p.columns);
    for (std::int64_t k0 = block * kBlock; k0 < k_end; k0 += kStep) {
      __syncthreads();
      for (int i = threadIdx.x; i < kStep * BM; i += kThreads) {
        xs[i % kStep][i / kStep] = x_at<kFp8>(p, t0 + i / kStep, k0 + i % kStep);
      }
      for (int i = threadIdx.x; i < kStep * BN; i += kThreads) {
        ws[i % kStep][i / kStep] = w_at<kFp8>(p, n0 + i / kStep, k0 + i % kStep);
      }
      __syncthreads();
      const int count = static_cast<int>(min(static_cast<std::int64_t>(kStep), k_end - k0));
      for (int k = 0; k < count; ++k) {
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i) a[i] = xs[k][ty * TM + i];
#pragma unroll
        for (int j = 0; j < TN; ++j) b[j] = ws[k][tx * TN + j];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
#pragma unroll
          for (int j = 0; j < TN; ++j) sum[i][j] = arith::fma(a[i], b[j], sum[i][j]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const std::int64_t t = t0 + ty * TM + i;
        const std::int64_t n = n0 + tx * TN + j;
        if (t >= p.tokens || n >= p.rows) continue;
        if (p.blocks != nullptr) {
          p.blocks[(block * p.tokens + t) * p.rows + n] = sum[i][j];
        } else {
          out[i][j] = arith::fma(scale_at<kFp8>(p, t, n, block), sum[i][j], out[i][j]);
        }
      }
    }
  }
  if (p.blocks != nullptr) return;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const std::int64_t t = t0 + ty * TM + i;
      const std::int64_t n = n0 + tx * TN + j;
      if (t < p.tokens && n < p.rows) store(p, t, n, out[i][j]);
    }
  }
}

/// Adds the block sums of a split product in ascending order.
template <bool kFp8>
__global__ void combine_kernel(Problem p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.tokens * p.rows) return;
  const std::int64_t t = i / p.rows;
  const std::int64_t n = i % p.rows;
  const std::int64_t blocks = (p.columns + kBlock - 1) / kBlock;
  float out = 0.0F;
  for (std::int64_t block = 0; block < blocks; ++block) {
    out = arith::fma(scale_at<kFp8>(p, t, n, block), p.blocks[(block * p.tokens + t) * p.rows + n], out);
  }
  store(p, t, n, out);
}

__global__ void dequantise_kernel(DeviceMatrix m) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= m.rows * m.columns) return;
  const std::int64_t blocks = (m.columns + kBlock - 1) / kBlock;
  const std::uint8_t scale = m.scales[i / m.columns / kBlock * blocks + i % m.columns / kBlock];
  m.bf16[i] = arith::f32_to_bf16(arith::e4m3_to_f32(m.codes[i]) * arith::ue8m0_to_f32(scale));
}

template <int BM, int BN, int TM, int TN, bool kFp8>
void launch_tiles(const Problem& p, cudaStream_t stream) {
  const std::int64_t blocks = p.blocks != nullptr ? (p.columns + kBlock - 1) / kBlock : 1;
  const dim3 grid(static_cast<unsigned>((p.rows + BN - 1) / BN), static_cast<unsigned>((p.tokens + BM - 1) / BM),
                  static_cast<unsigned>(blocks));
  tile_kernel<BM, BN, TM, TN, kFp8><<<grid, (BM / TM) * (BN / TN), 0, stream>>>(p);
  DSV4_LAUNCHED("linear tile_kernel");
}

/// Large products keep all blocks of an output in one thread; small ones split K, since block sums are
/// independent work (section 6).
template <bool kFp8>
void launch(Problem p, DeviceMemory& scratch, cudaStream_t stream) {
  const std::int64_t large_tiles = ((p.tokens + 127) / 128) * ((p.rows + 127) / 128);
  if (p.tokens > 64 && large_tiles >= 64) return launch_tiles<128, 128, 8, 8, kFp8>(p, stream);
  const std::int64_t blocks = (p.columns + kBlock - 1) / kBlock;
  p.blocks = scratch.get<float>("scratch/linear", static_cast<std::size_t>(blocks * p.tokens * p.rows));
  if (p.tokens > 16) {
    launch_tiles<64, 64, 4, 4, kFp8>(p, stream);
  } else {
    launch_tiles<16, 128, 2, 8, kFp8>(p, stream);
  }
  const std::int64_t outputs = p.tokens * p.rows;
  combine_kernel<kFp8><<<static_cast<unsigned>((outputs + 255) / 256), 256, 0, stream>>>(p);
  DSV4_LAUNCHED("linear combine_kernel");
}

}  // namespace

void dequantise(const DeviceMatrix& matrix, cudaStream_t stream) {
  const std::int64_t elements = matrix.rows * matrix.columns;
  dequantise_kernel<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, stream>>>(matrix);
  DSV4_LAUNCHED("dequantise_kernel");
}

void linear(const Activations& x, std::int64_t tokens, const DeviceMatrix& weights, std::int64_t first_row,
            std::int64_t rows, const Product& out, DeviceMemory& scratch, cudaStream_t stream) {
  if (tokens == 0 || rows == 0) return;
  const Problem p{x, weights.codes, weights.scales, weights.bf16, tokens, rows, weights.columns, first_row, out, nullptr};
  if (x.codes != nullptr) {
    launch<true>(p, scratch, stream);
  } else {
    launch<false>(p, scratch, stream);
  }
}

}  // namespace dsv4::gpu
