#include "gpu/linear.cuh"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/fma.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/check.cuh"
#include "model/error.hpp"

namespace dsv4::gpu {
namespace {

constexpr int kBlock = 128;             // of K, section 6
constexpr int kStep = 16;               // of K, staged in shared memory at a time
constexpr int kStages = 4;              // steps on their way
constexpr std::int64_t kReach = 256;    // rows that a tile may read behind the last one
constexpr int kMultiprocessors = 132;   // of an H200, with this much shared memory each, 1 KB a block its own
constexpr int kMultiprocessorBytes = 228 * 1024;

/// What a kernel instance needs, by value.
struct Problem {
  WideOperand x, w;
  std::int64_t tokens, rows, columns;  // of one group
  int groups;
  std::int64_t parts, part_blocks;  // K blocks fall into parts, one for each tile of grid.z
  Product out;
  float* sums;  // [groups, K blocks, tokens, rows]: block sums of a split product, or null

  __host__ __device__ std::int64_t k_blocks() const { return (columns + kBlock - 1) / kBlock; }
  __device__ float scale(std::int64_t t, std::int64_t n, std::int64_t block) const {
    if (x.scales == nullptr) return 1.0F;
    return arith::ue8m0_to_f32(x.scales[t * k_blocks() + block]) *
           arith::ue8m0_to_f32(w.scales[n / kBlock * k_blocks() + block]);
  }
  __device__ float* sum_at(int group, std::int64_t block, std::int64_t t, std::int64_t n) const {
    return sums + ((group * k_blocks() + block) * tokens + t) * rows + n;
  }
  /// Four columns; rows of the output are vectors of four.
  __device__ void store(int group, std::int64_t t, std::int64_t n, float4 value) const {
    const std::int64_t at = t * out.row_stride + group * rows + n;
    if (out.f32 != nullptr) {
      *reinterpret_cast<float4*>(out.f32 + at) = value;
    } else {
      const auto pair = [](float low, float high) {
        return std::uint32_t{arith::f32_to_bf16(low)} | std::uint32_t{arith::f32_to_bf16(high)} << 16;
      };
      *reinterpret_cast<uint2*>(out.bf16 + at) = make_uint2(pair(value.x, value.y), pair(value.z, value.w));
    }
  }
  __device__ void store(int group, std::int64_t t, std::int64_t n, float value) const {
    const std::int64_t at = t * out.row_stride + group * rows + n;
    if (out.f32 != nullptr) {
      out.f32[at] = value;
    } else {
      out.bf16[at] = arith::f32_to_bf16(value);
    }
  }
};

/// A tile of a product. A warp is 4 x 8 threads; a thread owns RM x CN groups of 4 x 4 outputs, the groups 16 rows
/// and 32 columns apart, so that a warp reads whole lines of shared memory; WM x WN warps make the tile. Block sums
/// are held in registers; finished blocks are added up in shared memory, which leaves room for more sums: each
/// value read from shared memory then serves more of them.
template <int RM, int CN, int WM, int WN>
struct Tile {
  static constexpr int kTokens = 16 * RM * WM;
  static constexpr int kRows = 32 * CN * WN;
  static constexpr int kThreads = 32 * WM * WN;
  static constexpr int kVectors = 4 * RM * CN;  // of four outputs, a thread
  static constexpr int kStageFloats = kStep * (kTokens + kRows);
  static constexpr int kSharedBytes = (kStages * kStageFloats + kTokens * kRows) * static_cast<int>(sizeof(float));
  /// Tiles that the device holds at a time.
  static constexpr std::int64_t kEnough = kMultiprocessors * (kMultiprocessorBytes / (kSharedBytes + 1024));
};

/// Starts the copy of four values to shared memory. Values that are read kOnce leave the second cache first, so that the
/// block sums of a split product stay there: with weights of 134 MB that is 3 of 70 microseconds.
template <bool kOnce>
__device__ __forceinline__ void bring_vector(float* shared, const float* from) {
#if __CUDA_ARCH__ == 900  // where it was measured; nvcc 13.0 makes an illegal instruction of it in another tile shape
  if constexpr (kOnce) {
    constexpr std::uint64_t kEvictFirst = 0x12F0000000000000U;  // what createpolicy.fractional.L2::evict_first gives
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(from), "l"(kEvictFirst)
                 : "memory");
    return;
  }
#endif
  __pipeline_memcpy_async(shared, from, 16);
}

/// Starts the copy of kStep columns x kItems rows of an operand to shared memory [column][row].
template <int kItems, int kThreads, bool kOnce = false>
__device__ __forceinline__ void bring(float* shared, const float* from, std::int64_t stride) {
  constexpr int kVectors = kStep * kItems / 4;
#pragma unroll
  for (int i = 0; i < kVectors; i += kThreads) {
    const int at = i + static_cast<int>(threadIdx.x);
    if (kVectors % kThreads != 0 && at >= kVectors) break;
    const int k = at / (kItems / 4);
    const int r = at % (kItems / 4) * 4;
    bring_vector<kOnce>(shared + k * kItems + r, from + k * stride + r);
  }
}

/// Every output is one chain in the canonical order in one thread. K is a multiple of kStep, rows and tokens of
/// any number; what lies behind the last row is read and left out. kWeightsOnce: at most one other tile, of the same
/// moment, reads these weights.
template <int RM, int CN, int WM, int WN, bool kWeightsOnce>
__global__ void __launch_bounds__(32 * WM * WN) tile_kernel(Problem p) {
  using Shape = Tile<RM, CN, WM, WN>;
  extern __shared__ float4 memory[];
  float4* const out = memory + threadIdx.x;  // [kVectors][kThreads]: vector v of this thread at v * kThreads
  float* const shared = reinterpret_cast<float*>(memory + Shape::kVectors * Shape::kThreads);
  const int group = static_cast<int>(blockIdx.z / p.parts);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z % p.parts) * p.part_blocks;
  const std::int64_t last = min(first + p.part_blocks, p.k_blocks());
  const std::int64_t t0 = static_cast<std::int64_t>(blockIdx.y) * Shape::kTokens;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) * Shape::kRows;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int ty = warp / WN * (16 * RM) + lane / 8 * 4;  // of the first group
  const int tx = warp % WN * (32 * CN) + lane % 8 * 4;

  const std::int64_t begin = first * kBlock;
  const int steps = static_cast<int>((min(last * kBlock, p.columns) - begin) / kStep);
  const float* x = p.x.wide + (group * p.columns + begin) * p.x.stride + t0;
  const float* w = p.w.wide + begin * p.w.stride + group * p.rows + n0;
  const auto fetch = [&](int step) {
    if (step < steps) {
      float* const stage = shared + step % kStages * Shape::kStageFloats;
      bring<Shape::kTokens, Shape::kThreads>(stage, x, p.x.stride);
      bring<Shape::kRows, Shape::kThreads, kWeightsOnce>(stage + kStep * Shape::kTokens, w, p.w.stride);
      x += kStep * p.x.stride;
      w += kStep * p.w.stride;
    }
    __pipeline_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

#pragma unroll
  for (int v = 0; v < Shape::kVectors; ++v) out[v * Shape::kThreads] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  float sum[4 * RM][4 * CN] = {};
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    fetch(step + kStages - 1);  // into the stage that all threads have left
    const float* const xb = shared + step % kStages * Shape::kStageFloats + ty;
    const float* const wb = shared + step % kStages * Shape::kStageFloats + kStep * Shape::kTokens + tx;
    float a[2][4 * RM], b[2][4 * CN];
    const auto load = [&](int k) {
#pragma unroll
      for (int i = 0; i < RM; ++i) {
        *reinterpret_cast<float4*>(a[k % 2] + 4 * i) = *reinterpret_cast<const float4*>(xb + k * Shape::kTokens + 16 * i);
      }
#pragma unroll
      for (int j = 0; j < CN; ++j) {
        *reinterpret_cast<float4*>(b[k % 2] + 4 * j) = *reinterpret_cast<const float4*>(wb + k * Shape::kRows + 32 * j);
      }
    };
    load(0);
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      if (k + 1 < kStep) load(k + 1);
#pragma unroll
      for (int i = 0; i < 4 * RM; ++i) {
#pragma unroll
        for (int j = 0; j < 4 * CN; ++j) sum[i][j] = arith::fma(a[k % 2][i], b[k % 2][j], sum[i][j]);
      }
    }
    if ((step + 1) % (kBlock / kStep) != 0 && step + 1 < steps) continue;
    const std::int64_t block = first + step / (kBlock / kStep);  // is complete
#pragma unroll
    for (int i = 0; i < 4 * RM; ++i) {
      const std::int64_t t = t0 + ty + i / 4 * 16 + i % 4;
#pragma unroll
      for (int j = 0; j < CN; ++j) {
        const std::int64_t n = n0 + tx + 32 * j;  // four columns of one weight block
        const float4 block_sum = make_float4(sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
        if (p.sums == nullptr) {
          const float s = t < p.tokens && n < p.rows ? p.scale(t, n, block) : 1.0F;
          float4& all = out[(i * CN + j) * Shape::kThreads];
          all = make_float4(arith::fma(s, block_sum.x, all.x), arith::fma(s, block_sum.y, all.y),
                            arith::fma(s, block_sum.z, all.z), arith::fma(s, block_sum.w, all.w));
        } else if (t < p.tokens && n < p.rows) {
          *reinterpret_cast<float4*>(p.sum_at(group, block, t, n)) = block_sum;
        }
#pragma unroll
        for (int l = 4 * j; l < 4 * j + 4; ++l) sum[i][l] = 0.0F;
      }
    }
  }
  if (p.sums != nullptr) return;
#pragma unroll
  for (int i = 0; i < 4 * RM; ++i) {
    const std::int64_t t = t0 + ty + i / 4 * 16 + i % 4;
#pragma unroll
    for (int j = 0; j < CN; ++j) {
      const std::int64_t n = n0 + tx + 32 * j;
      if (t < p.tokens && n < p.rows) p.store(group, t, n, out[(i * CN + j) * Shape::kThreads]);
    }
  }
}

/// Adds the block sums of a split product in ascending order: a thread four columns of a row, kAhead sums on their way.
__global__ void __launch_bounds__(128) combine_kernel(Problem p) {
  constexpr int kAhead = 16;
  const auto n = 4 * (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (n >= p.rows) return;
  const auto t = static_cast<std::int64_t>(blockIdx.y);
  const int group = static_cast<int>(blockIdx.z);
  const std::int64_t blocks = p.k_blocks();
  float4 out = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  for (std::int64_t first = 0; first < blocks; first += kAhead) {
    float4 sum[kAhead];
    float s[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k >= blocks) break;
      sum[k] = *reinterpret_cast<const float4*>(p.sum_at(group, first + k, t, n));
      s[k] = p.scale(t, n, first + k);  // four columns of one weight block
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (first + k >= blocks) break;
      out = make_float4(arith::fma(s[k], sum[k].x, out.x), arith::fma(s[k], sum[k].y, out.y),
                        arith::fma(s[k], sum[k].z, out.z), arith::fma(s[k], sum[k].w, out.w));
    }
  }
  p.store(group, t, n, out);
}

/// Any shape: one thread an output.
__global__ void plain_kernel(Problem p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.tokens * p.rows) return;
  const int group = static_cast<int>(blockIdx.y);
  const std::int64_t t = i / p.rows;
  const std::int64_t n = i % p.rows;
  float out = 0.0F;
  for (std::int64_t block = 0; block < p.k_blocks(); ++block) {
    float sum = 0.0F;
    for (std::int64_t k = block * kBlock; k < min((block + 1) * kBlock, p.columns); ++k) {
      sum = arith::fma(p.x.wide[(group * p.columns + k) * p.x.stride + t],
                       p.w.wide[k * p.w.stride + group * p.rows + n], sum);
    }
    out = arith::fma(p.scale(t, n, block), sum, out);
  }
  p.store(group, t, n, out);
}

constexpr int kTurn = 32;  // a square that is turned over in shared memory

/// to[k * stride + r] = value(from[r * columns + k]).
template <class Stored, class Value>
__global__ void turn_kernel(const Stored* from, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* to,
                            Value value) {
  __shared__ float square[kTurn][kTurn + 1];
  const std::int64_t r0 = static_cast<std::int64_t>(blockIdx.y) * kTurn;
  const std::int64_t k0 = static_cast<std::int64_t>(blockIdx.x) * kTurn;
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += static_cast<int>(blockDim.y)) {
    const std::int64_t r = r0 + i;
    const std::int64_t k = k0 + threadIdx.x;
    if (r < rows && k < columns) square[i][threadIdx.x] = value(from[r * columns + k], r, k);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += static_cast<int>(blockDim.y)) {
    const std::int64_t r = r0 + threadIdx.x;
    const std::int64_t k = k0 + i;
    if (r < rows && k < columns) to[k * stride + r] = square[threadIdx.x][i];
  }
}

template <class Stored, class Value>
void turn(const Stored* from, const WideOperand& to, cudaStream_t stream, Value value) {
  if (to.rows == 0 || to.columns == 0) return;
  const dim3 grid(static_cast<unsigned>((to.columns + kTurn - 1) / kTurn),
                  static_cast<unsigned>((to.rows + kTurn - 1) / kTurn));
  turn_kernel<<<grid, dim3(kTurn, 8), 0, stream>>>(from, to.rows, to.columns, to.stride, to.wide, value);
  DSV4_LAUNCHED("turn_kernel");
}

struct FromCodes {
  __device__ float operator()(std::uint8_t code, std::int64_t, std::int64_t) const { return arith::e4m3_to_f32(code); }
};
struct FromBf16 {
  __device__ float operator()(std::uint16_t bits, std::int64_t, std::int64_t) const { return arith::bf16_to_f32(bits); }
};
struct FromScaledCodes {
  const std::uint8_t* scales;
  std::int64_t k_blocks;
  __device__ float operator()(std::uint8_t code, std::int64_t n, std::int64_t k) const {
    const float scale = arith::ue8m0_to_f32(scales[n / kBlock * k_blocks + k / kBlock]);
    return arith::bf16_to_f32(arith::f32_to_bf16(arith::e4m3_to_f32(code) * scale));
  }
};

dim3 output_blocks(const Problem& p) {
  return {static_cast<unsigned>((p.tokens * p.rows + 255) / 256), static_cast<unsigned>(p.groups)};
}

/// How a product falls into tiles. Enough tiles keep all blocks of an output in one thread; few tiles are split along
/// K, since block sums are independent work (section 6).
template <class Shape>
struct Tiling {
  std::int64_t x, y, parts;
  explicit Tiling(const Problem& p)
      : x((p.rows + Shape::kRows - 1) / Shape::kRows), y((p.tokens + Shape::kTokens - 1) / Shape::kTokens), parts(1) {
    const std::int64_t tiles = x * y * p.groups;
    if (2 * tiles <= Shape::kEnough) parts = std::min(Shape::kEnough / tiles, p.k_blocks());
  }
};

template <int RM, int CN, int WM, int WN, bool kWeightsOnce = false>
void launch_tiles(Problem p, DeviceMemory& scratch, cudaStream_t stream) {
  using Shape = Tile<RM, CN, WM, WN>;
  const auto kernel = tile_kernel<RM, CN, WM, WN, kWeightsOnce>;
  const Tiling<Shape> tiling(p);
  p.parts = tiling.parts;
  p.part_blocks = (p.k_blocks() + p.parts - 1) / p.parts;
  p.parts = (p.k_blocks() + p.part_blocks - 1) / p.part_blocks;
  if (p.parts > 1) {
    p.sums = scratch.get<float>("scratch/linear", static_cast<std::size_t>(p.groups * p.k_blocks() * p.tokens * p.rows));
  }
  const dim3 grid(static_cast<unsigned>(tiling.x), static_cast<unsigned>(tiling.y),
                  static_cast<unsigned>(p.groups * p.parts));
  DSV4_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
  kernel<<<grid, Shape::kThreads, Shape::kSharedBytes, stream>>>(p);
  DSV4_LAUNCHED("linear tile_kernel");
  if (p.parts == 1) return;
  const dim3 outputs(static_cast<unsigned>((p.rows / 4 + 127) / 128), static_cast<unsigned>(p.tokens),
                     static_cast<unsigned>(p.groups));
  combine_kernel<<<outputs, 128, 0, stream>>>(p);
  DSV4_LAUNCHED("linear combine_kernel");
}

void run(const WideOperand& x, const WideOperand& weights, int groups, const Product& out, DeviceMemory& scratch,
         cudaStream_t stream) {
  if (x.rows == 0 || weights.rows == 0) return;
  require(x.columns == groups * weights.columns && (x.scales == nullptr) == (weights.scales == nullptr),
          "cuda engine: operands of a product do not fit");
  Problem p{x, weights, x.rows, weights.rows / groups, weights.columns, groups, 1, 0, out, nullptr};
  if (p.columns % kStep != 0 || p.rows % 4 != 0 || out.row_stride % 4 != 0) {
    plain_kernel<<<output_blocks(p), 256, 0, stream>>>(p);
    DSV4_LAUNCHED("linear plain_kernel");
  } else if (p.tokens <= 64 && Tiling<Tile<2, 1, 1, 2>>(p).parts == 1) {
    launch_tiles<2, 1, 1, 2>(p, scratch, stream);
  } else if (p.tokens <= 64) {
    launch_tiles<1, 2, 2, 2, true>(p, scratch, stream);
  } else if (p.rows <= 64) {
    launch_tiles<2, 2, 4, 1>(p, scratch, stream);
  } else {
    launch_tiles<2, 2, 2, 2>(p, scratch, stream);
  }
}

}  // namespace

std::int64_t wide_stride(std::int64_t rows) { return (rows + 3) / 4 * 4; }

std::size_t wide_floats(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(wide_stride(rows) * columns + kReach);
}

WideOperand widen_rows(const Activations& x, std::int64_t tokens, std::int64_t columns, DeviceMemory& memory,
                       cudaStream_t stream) {
  const WideOperand wide{memory.get<float>("scratch/wide_rows", wide_floats(tokens, columns)), tokens, columns,
                         wide_stride(tokens), x.scales};
  if (x.codes != nullptr) {
    turn(x.codes, wide, stream, FromCodes{});
  } else {
    turn(x.bf16, wide, stream, FromBf16{});
  }
  return wide;
}

void widen_weights(const WideOperand& matrix, Widen form, const void* stored, const std::uint8_t* scales,
                   cudaStream_t stream) {
  switch (form) {
    case Widen::codes:
      return turn(static_cast<const std::uint8_t*>(stored), matrix, stream, FromCodes{});
    case Widen::bf16:
      return turn(static_cast<const std::uint16_t*>(stored), matrix, stream, FromBf16{});
    case Widen::scaled_to_bf16:
      return turn(static_cast<const std::uint8_t*>(stored), matrix, stream,
                  FromScaledCodes{scales, (matrix.columns + kBlock - 1) / kBlock});
  }
}

void linear(const WideOperand& x, const WideOperand& weights, const Product& out, DeviceMemory& scratch,
            cudaStream_t stream) {
  run(x, weights, 1, out, scratch, stream);
}

void grouped_linear(const WideOperand& x, const WideOperand& weights, int groups, const Product& out,
                    DeviceMemory& scratch, cudaStream_t stream) {
  run(x, weights, groups, out, scratch, stream);
}

}  // namespace dsv4::gpu
