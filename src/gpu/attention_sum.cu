#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/key_rows.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kHeads = 16;                       // of a warp
constexpr int kBlockHeads = kWarps * kHeads;
constexpr int kChannels = 256;                   // of a block, two times four a thread
constexpr int kTileKeys = 16;                    // divides a block of section 18
constexpr int kPlaces = 256;                     // held at a time
constexpr int kWeightStride = kBlockHeads + 4;
constexpr int kWideVectors = kTileKeys * kChannels / 4;
constexpr int kSharedBytes = 2 * kWideVectors * 16 + 3 * kTileKeys * kWeightStride * 4 + 2 * kTileKeys * kRawBytes +
                             (kPlaces + 3 * kTileKeys) * static_cast<int>(sizeof(KeyPlace));

/// Four channels of a row, the first a multiple of 4.
__device__ __forceinline__ float4 channels(const std::uint8_t* raw, int channel) {
  if (channel < kNopeDim) {
    const float scale = raw_scale(raw, channel / layout::kKvBlock);
    return scaled(*reinterpret_cast<const std::uint32_t*>(raw + channel), scale, scale);
  }
  const uint2 rope = *reinterpret_cast<const uint2*>(raw + kNopeDim + 2 * (channel - kNopeDim));
  return make_float4(arith::from_bits(rope.x << 16), arith::from_bits(rope.x & 0xFFFF0000U),
                     arith::from_bits(rope.y << 16), arith::from_bits(rope.y & 0xFFFF0000U));
}

/// O_c = fold over valid keys in list order of fma(e, v_c, O); before a block of section 18, O = rn(O * f). A
/// block takes 256 channels of up to 64 heads, so that a key's values are decoded once a token; bytes and weights
/// are brought two tiles ahead, bytes decoded one tile ahead.
__global__ void __launch_bounds__(kThreads, 2) sum_kernel(CoreProblem p) {
  extern __shared__ float4 shared[];
  float4* const wide = shared;                                                      // [2][kTileKeys][kChannels / 4]
  float* const weights = reinterpret_cast<float*>(wide + 2 * kWideVectors);         // [3][kTileKeys][kWeightStride]
  auto* const raw = reinterpret_cast<std::uint8_t*>(weights + 3 * kTileKeys * kWeightStride);
  auto* const places = reinterpret_cast<KeyPlace*>(raw + 2 * kTileKeys * kRawBytes);
  const std::int64_t token = p.first_token + blockIdx.x;
  const int first_channel = static_cast<int>(blockIdx.y) * kChannels;
  const int block_head = static_cast<int>(blockIdx.z) * kBlockHeads;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int first_head = block_head + warp * kHeads;
  const std::int64_t row = std::int64_t{blockIdx.x} * p.heads;
  const int blocks = (p.items + kOnlineBlock - 1) / kOnlineBlock;
  // Bytes of the channels: 256 codes, or 192 codes and 64 bf16.
  const int first_vector = first_channel / 16;
  const int vectors = first_channel == 0 ? kChannels / 16 : kRawVectors - first_vector;

  float4 sum[2][kHeads];  // channels first_channel + 128 * c + 4 * lane ..
#pragma unroll
  for (int h = 0; h < kHeads; ++h) sum[0][h] = sum[1][h] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  bool any = false;
  for (int begin = 0; begin < p.items; begin += kPlaces) {
    const int count = min(kPlaces, p.items - begin);
    const int tiles = (count + kTileKeys - 1) / kTileKeys;
    const KeyPlace* const mine = p.places + std::int64_t{blockIdx.x} * p.items + begin;
    __syncthreads();
    for (int i = thread; i < (tiles + 2) * kTileKeys; i += kThreads) places[i] = i < count ? mine[i] : KeyPlace{};
    __syncthreads();
    const auto bring = [&](int tile) {
      bring_rows<kThreads>(raw + tile % 2 * kTileKeys * kRawBytes, places + tile * kTileKeys, kTileKeys, first_vector,
                           vectors);
      float* const to = weights + tile % 3 * kTileKeys * kWeightStride;
      for (int i = thread; i < kTileKeys * kBlockHeads; i += kThreads) {
        const int key = i % kTileKeys;
        const int head = i / kTileKeys;
        const int item = tile * kTileKeys + key;
        if (item >= count || block_head + head >= p.heads) continue;
        __pipeline_memcpy_async(to + key * kWeightStride + head,
                                p.weights + (row + block_head + head) * p.items + begin + item, 4);
      }
      __pipeline_commit();
    };
    const auto widen = [&](int tile) {
      for (int i = thread; i < kWideVectors; i += kThreads) {
        const int key = i / (kChannels / 4);
        const int vector = i % (kChannels / 4);
        if (places[tile * kTileKeys + key].values == nullptr) continue;
        wide[tile % 2 * kWideVectors + i] =
            channels(raw + (tile % 2 * kTileKeys + key) * kRawBytes, first_channel + 4 * vector);
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
      if (p.factors != nullptr && (begin + tile * kTileKeys) % kOnlineBlock == 0) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          const int head = min(first_head + h, p.heads - 1);
          const float f = p.factors[(row + head) * blocks + (begin + tile * kTileKeys) / kOnlineBlock];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float4& s = sum[c][h];
            s = make_float4(s.x * f, s.y * f, s.z * f, s.w * f);
          }
        }
      }
      const float* const tile_weights = weights + tile % 3 * kTileKeys * kWeightStride + warp * kHeads;
      const float4* const tile_values = wide + tile % 2 * kWideVectors + lane;
#pragma unroll 1
      for (int key = 0; key < kTileKeys; ++key) {
        if (places[tile * kTileKeys + key].values == nullptr) continue;
        any = true;
        float e[kHeads];
#pragma unroll
        for (int h = 0; h < kHeads; h += 4) {
          *reinterpret_cast<float4*>(e + h) = *reinterpret_cast<const float4*>(tile_weights + key * kWeightStride + h);
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float4 v = tile_values[key * (kChannels / 4) + 32 * c];
#pragma unroll
          for (int h = 0; h < kHeads; ++h) {
            float4& s = sum[c][h];
            s.x = arith::fma(e[h], v.x, s.x);
            s.y = arith::fma(e[h], v.y, s.y);
            s.z = arith::fma(e[h], v.z, s.z);
            s.w = arith::fma(e[h], v.w, s.w);
          }
        }
      }
      __pipeline_wait_prior(0);
      __syncthreads();
      if (tile + 3 < tiles) bring(tile + 3);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h;
    if (head >= p.heads) break;
    const float den = any ? p.denominators[row + head] : 1.0F;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      std::uint16_t* out = p.out + (token * p.heads + head) * kHeadDim + first_channel + 128 * c + 4 * lane;
      out[0] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].x, den));
      out[1] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].y, den));
      out[2] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].z, den));
      out[3] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].w, den));
    }
  }
}

}  // namespace

void attention_sum(const CoreProblem& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.tokens), kHeadDim / kChannels,
                  static_cast<unsigned>((p.heads + kBlockHeads - 1) / kBlockHeads));
  DSV4_CUDA(cudaFuncSetAttribute(sum_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  sum_kernel<<<grid, kThreads, kSharedBytes, stream>>>(p);
  DSV4_LAUNCHED("sum_kernel");
}

}  // namespace dsv4::gpu
