#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/key_rows.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kPlaces = 256;                // held at a time
constexpr std::int64_t kManyTokens = 128;   // that fill the device with large blocks

/// What a block takes: a thread holds kVectors x 4 channels of kHeads heads. Large blocks read each value from shared
/// memory for more sums, small ones share few tokens out among more blocks.
template <int kVectors, int kHeads, int kWarps, int kTileKeys>
struct Shape {
  static_assert(kOnlineBlock % kTileKeys == 0 && kPlaces % kTileKeys == 0);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlockHeads = kWarps * kHeads;
  static constexpr int kChannels = 128 * kVectors;
  static constexpr int kWeightStride = kBlockHeads + 4;
  static constexpr int kWide = kTileKeys * kChannels / 4;  // vectors of a tile
  static constexpr int kSharedBytes = 2 * kWide * 16 + 3 * kTileKeys * kWeightStride * 4 + 2 * kTileKeys * kRawBytes +
                                      (kPlaces + 3 * kTileKeys) * static_cast<int>(sizeof(KeyPlace));
};

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

/// O_c = fold over valid keys in list order of fma(e, v_c, O); before a block of section 18, O = rn(O * f). Bytes
/// and weights are brought two tiles ahead, bytes decoded one tile ahead.
template <int kVectors, int kHeads, int kWarps, int kTileKeys>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps) sum_kernel(CoreProblem p) {
  using S = Shape<kVectors, kHeads, kWarps, kTileKeys>;
  constexpr int kThreads = S::kThreads;
  constexpr int kBlockHeads = S::kBlockHeads;
  constexpr int kChannels = S::kChannels;
  constexpr int kWeightStride = S::kWeightStride;
  constexpr int kWideVectors = S::kWide;
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
  // Bytes of the channels; the last 64 have two each.
  const int first_vector = first_channel / 16;
  const int vectors = first_channel + kChannels < kHeadDim ? kChannels / 16 : kRawVectors - first_vector;

  float4 sum[kVectors][kHeads];  // channels first_channel + 128 * c + 4 * lane ..
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int c = 0; c < kVectors; ++c) sum[c][h] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  bool any = false;
  for (int begin = 0; begin < p.items; begin += kPlaces) {
    const int count = min(kPlaces, p.items - begin);
    const int tiles = (count + kTileKeys - 1) / kTileKeys;
    const KeyPlace* const mine = p.places + std::int64_t{blockIdx.x} * p.items + begin;
    __syncthreads();
    for (int i = thread; i < (tiles + 2) * kTileKeys; i += kThreads) places[i] = i < count ? mine[i] : KeyPlace{};
    __syncthreads();
    const auto bring = [&](int tile) {
      bring_rows<kThreads, kChannels / 8>(raw + tile % 2 * kTileKeys * kRawBytes, places + tile * kTileKeys, kTileKeys,
                                          first_vector, vectors);
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
          for (int c = 0; c < kVectors; ++c) {
            float4& s = sum[c][h];
            s = make_float4(s.x * f, s.y * f, s.z * f, s.w * f);
          }
        }
      }
      const float* const tile_weights = weights + tile % 3 * kTileKeys * kWeightStride + warp * kHeads;
      const float4* const tile_values = wide + tile % 2 * kWideVectors + lane;
      const auto add = [&](int key) {
        float e[kHeads];
#pragma unroll
        for (int h = 0; h < kHeads; h += 4) {
          *reinterpret_cast<float4*>(e + h) = *reinterpret_cast<const float4*>(tile_weights + key * kWeightStride + h);
        }
#pragma unroll
        for (int c = 0; c < kVectors; ++c) {
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
      };
      const bool mine_valid = places[tile * kTileKeys + lane % kTileKeys].values != nullptr;
      constexpr unsigned kAll = 0xFFFFFFFFU >> (32 - kTileKeys);
      const unsigned valid = __ballot_sync(0xFFFFFFFFU, mine_valid) & kAll;
      any |= valid != 0;
      if (valid == kAll) {
#pragma unroll kHeads  // keys whose reads run ahead
        for (int key = 0; key < kTileKeys; ++key) add(key);
      } else {
#pragma unroll 1
        for (int key = 0; key < kTileKeys; ++key) {
          if ((valid >> key & 1U) != 0) add(key);
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
    for (int c = 0; c < kVectors; ++c) {
      std::uint16_t* out = p.out + (token * p.heads + head) * kHeadDim + first_channel + 128 * c + 4 * lane;
      out[0] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].x, den));
      out[1] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].y, den));
      out[2] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].z, den));
      out[3] = arith::f32_to_bf16(__fdiv_rn(sum[c][h].w, den));
    }
  }
}

template <int kVectors, int kHeads, int kWarps, int kTileKeys>
void launch(const CoreProblem& p, cudaStream_t stream) {
  using S = Shape<kVectors, kHeads, kWarps, kTileKeys>;
  const dim3 grid(static_cast<unsigned>(p.tokens), kHeadDim / S::kChannels,
                  static_cast<unsigned>((p.heads + S::kBlockHeads - 1) / S::kBlockHeads));
  const auto kernel = sum_kernel<kVectors, kHeads, kWarps, kTileKeys>;
  DSV4_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes));
  kernel<<<grid, S::kThreads, S::kSharedBytes, stream>>>(p);
  DSV4_LAUNCHED("sum_kernel");
}

}  // namespace

void attention_sum(const CoreProblem& p, cudaStream_t stream) {
  if (p.tokens >= kManyTokens) {
    launch<2, 8, 8, 16>(p, stream);
  } else {
    launch<1, 4, 16, 32>(p, stream);
  }
}

}  // namespace dsv4::gpu
