#include <algorithm>

#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/key_rows.cuh"

namespace dsv4::gpu {
namespace {

constexpr float kScale = 0.044194173F;  // 0x3D3504F3
static_assert(__builtin_bit_cast(std::uint32_t, kScale) == 0x3D3504F3U);

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kWarpHeads = 4;
constexpr int kKeysAtOnce = 32 / kWarpHeads;
constexpr int kBlockHeads = kWarps * kWarpHeads;
constexpr int kTileKeys = 16;
constexpr int kMostItems = 512;          // of a block
constexpr int kTerms = kHeadDim / 32;    // of a lane
constexpr int kEnoughBlocks = 132;       // that keep the device busy
constexpr int kSharedBytes = 2 * kTileKeys * (kHeadDim * static_cast<int>(sizeof(float)) + kRawBytes) +
                             (kMostItems + 3 * kTileKeys) * static_cast<int>(sizeof(KeyPlace));

/// A row's values, [quarter of the terms][lane][4]: lane l's terms are elements l + 32 j.
__device__ __forceinline__ void decode(const std::uint8_t* raw, float4* key, int lane) {
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const std::uint8_t* at = raw + 128 * quarter + lane;
    std::uint32_t codes = at[0] | at[32] << 8;
    if (quarter < 3) {
      codes |= at[64] << 16 | std::uint32_t{at[96]} << 24;
      key[32 * quarter + lane] = scaled(codes, raw_scale(raw, 2 * quarter), raw_scale(raw, 2 * quarter + 1));
    } else {
      const auto* rope = reinterpret_cast<const std::uint16_t*>(raw + kNopeDim);
      float4 last = scaled(codes, raw_scale(raw, 6), 0.0F);
      last.z = arith::bf16_to_f32(rope[lane]);
      last.w = arith::bf16_to_f32(rope[lane + 32]);
      key[96 + lane] = last;
    }
  }
}

/// The tree of section 5 for 32 sums at once: on entry lane l holds its lane sum of every output, on return lane o
/// holds output o. Each level halves the outputs that a lane keeps: it adds its partner's sums of those.
__device__ __forceinline__ float transposed_tree(float (&v)[32], int lane) {
#pragma unroll
  for (int level = 0; level < 5; ++level) {
    const int s = 16 >> level;
    const bool high = (lane & s) != 0;
#pragma unroll
    for (int o = 0; o < 16; ++o) {
      if (o >= s) continue;
      const float keep = high ? v[o + s] : v[o];
      const float give = high ? v[o] : v[o + s];
      v[o] = keep + __shfl_xor_sync(0xFFFFFFFFU, give, s);
    }
  }
  return v[0];
}

/// A warp keeps four heads in registers, lane l the terms of lane l; eight keys at a time give 32 dots. Of the keys,
/// bytes are brought two tiles ahead and decoded one tile ahead.
__global__ void __launch_bounds__(kThreads) logits_kernel(CoreProblem p, int block_items) {
  extern __shared__ float4 shared[];
  constexpr int kTileVectors = kTileKeys * kHeadDim / 4;
  float4* const wide = shared;                                                                 // [2][kTileVectors]
  auto* const raw = reinterpret_cast<std::uint8_t*>(wide + 2 * kTileVectors);                  // [2][16][kRawBytes]
  auto* const places = reinterpret_cast<KeyPlace*>(raw + 2 * kTileKeys * kRawBytes);
  const std::int64_t token = p.first_token + blockIdx.x;
  const int begin = static_cast<int>(blockIdx.y) * block_items;
  const int count = min(block_items, p.items - begin);
  const int tiles = (count + kTileKeys - 1) / kTileKeys;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_head = static_cast<int>(blockIdx.z) * kBlockHeads + warp * kWarpHeads;

  const KeyPlace* const mine = p.places + std::int64_t{blockIdx.x} * p.items + begin;
  for (int i = static_cast<int>(threadIdx.x); i < (tiles + 2) * kTileKeys; i += kThreads) {
    places[i] = i < count ? mine[i] : KeyPlace{};
  }
  float q[kWarpHeads][kTerms];
#pragma unroll
  for (int h = 0; h < kWarpHeads; ++h) {
    const std::uint16_t* row = p.q + (token * p.heads + min(first_head + h, p.heads - 1)) * kHeadDim;
#pragma unroll
    for (int j = 0; j < kTerms; ++j) q[h][j] = arith::bf16_to_f32(row[lane + 32 * j]);
  }
  __syncthreads();

  const auto bring = [&](int tile) {
    bring_rows<kThreads, 32>(raw + tile % 2 * kTileKeys * kRawBytes, places + tile * kTileKeys, kTileKeys, 0,
                             kRawVectors);
    __pipeline_commit();
  };
  const auto widen = [&](int tile) {
    for (int key = warp; key < kTileKeys; key += kWarps) {
      float4* const to = wide + tile % 2 * kTileVectors + key * (kHeadDim / 4);
      if (places[tile * kTileKeys + key].values != nullptr) {
        decode(raw + (tile % 2 * kTileKeys + key) * kRawBytes, to, lane);
      } else {
        for (int quarter = 0; quarter < 4; ++quarter) to[32 * quarter + lane] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      }
    }
  };
  bring(0);
  bring(1);
  __pipeline_wait_prior(1);
  __syncthreads();
  widen(0);
  __pipeline_wait_prior(0);
  __syncthreads();
  bring(2);  // tiles behind the last have no places
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) widen(tile + 1);
    if (first_head < p.heads) {
#pragma unroll 1
      for (int key0 = 0; key0 < kTileKeys; key0 += kKeysAtOnce) {
        float sums[32];
#pragma unroll
        for (int k = 0; k < kKeysAtOnce; ++k) {
          const float4* const key = wide + tile % 2 * kTileVectors + (key0 + k) * (kHeadDim / 4) + lane;
#pragma unroll
          for (int h = 0; h < kWarpHeads; ++h) sums[kWarpHeads * k + h] = 0.0F;
#pragma unroll
          for (int quarter = 0; quarter < 4; ++quarter) {
            const float4 y = key[32 * quarter];
#pragma unroll
            for (int h = 0; h < kWarpHeads; ++h) {
              float& sum = sums[kWarpHeads * k + h];
              sum = arith::fma(q[h][4 * quarter], y.x, sum);
              sum = arith::fma(q[h][4 * quarter + 1], y.y, sum);
              sum = arith::fma(q[h][4 * quarter + 2], y.z, sum);
              sum = arith::fma(q[h][4 * quarter + 3], y.w, sum);
            }
          }
        }
        const float dot = transposed_tree(sums, lane);
        const int head = first_head + lane % kWarpHeads;
        const int item = tile * kTileKeys + key0 + lane / kWarpHeads;
        if (head < p.heads && item < count) {
          p.weights[(std::int64_t{blockIdx.x} * p.heads + head) * p.items + begin + item] = dot * kScale;
        }
      }
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    if (tile + 3 < tiles) bring(tile + 3);
  }
}

}  // namespace

void attention_logits(const CoreProblem& p, cudaStream_t stream) {
  const int head_blocks = (p.heads + kBlockHeads - 1) / kBlockHeads;
  // Few tokens share the list out among blocks; a block brings its queries once.
  const std::int64_t wanted = kEnoughBlocks / (p.tokens * head_blocks);
  const int parts = static_cast<int>(std::clamp<std::int64_t>(wanted, (p.items + kMostItems - 1) / kMostItems,
                                                              (p.items + kTileKeys - 1) / kTileKeys));
  const int block_items = ((p.items + parts - 1) / parts + kTileKeys - 1) / kTileKeys * kTileKeys;
  const dim3 grid(static_cast<unsigned>(p.tokens), static_cast<unsigned>((p.items + block_items - 1) / block_items),
                  static_cast<unsigned>(head_blocks));
  DSV4_CUDA(cudaFuncSetAttribute(logits_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  logits_kernel<<<grid, kThreads, kSharedBytes, stream>>>(p, block_items);
  DSV4_LAUNCHED("logits_kernel");
}

}  // namespace dsv4::gpu
