/// indexer.score: ReLU(q . k) weighted over heads, visible entries only (docs/numerics.md 13, 18).
#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/row_device.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr int kBlockKeys = 128;
constexpr int kTileKeys = 32;   // in shared memory at a time
constexpr int kWarps = 4;       // two halves of 32 heads, two halves of a tile
constexpr int kThreads = 32 * kWarps;
constexpr int kResident = 2;    // blocks of a multiprocessor
constexpr int kWaves = 8 * kResident * 132;  // blocks that keep the device busy
constexpr int kPassHeads = 64;
constexpr int kWarpKeys = kTileKeys / kWarps;  // brought by a warp

struct ScoreProblem {
  const std::uint8_t* query_codes;
  const void* query_scales;  // f32 (FP8) or ue8m0 (FP4)
  const float* weights;      // [T, heads]
  const std::int32_t* position;
  const std::int32_t* table_offset;
  const std::int32_t* tables;
  CacheMemory cache;
  int heads;
  std::int64_t width;  // of scores
  float* scores;       // [T, width]
};

/// Elements l, l + 32, l + 64 and l + 96 of a vector: the terms of lane l (section 5).
template <bool kFp4>
__device__ float4 query_terms(const ScoreProblem& p, std::int64_t token, int head, int l) {
  const std::int64_t row = token * p.heads + head;
  const std::uint8_t* codes = p.query_codes + row * kIndexDim + l;
  float x[4];
  if constexpr (!kFp4) {
    arith::e4m3x4_to_f32(codes[0] | codes[32] << 8 | codes[64] << 16 | std::uint32_t{codes[96]} << 24, x);
  } else {
    const auto* scales = static_cast<const std::uint8_t*>(p.query_scales) + row * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = arith::e2m1_to_f32(codes[32 * j]) * arith::ue8m0_to_f32(scales[j]);
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

/// Where the row of an entry lies.
struct IndexKeyPlace {
  const std::uint8_t* values;
  const std::uint8_t* scales;
};

__device__ IndexKeyPlace index_key_place(const CacheMemory& cache, const std::int32_t* table, int entry) {
  const auto* page = reinterpret_cast<const std::uint8_t*>(cache.data + table[entry / cache.page_rows] * cache.pitch);
  const int offset = entry % cache.page_rows;
  return {page + offset * cache.value_bytes, page + cache.page_rows * cache.value_bytes + offset * cache.scale_bytes};
}

/// The terms of lane l of a key in their stored form.
template <bool kFp4>
struct RawTerms {
  std::uint32_t codes = 0;   // of term j in byte j
  std::uint32_t scales = 0;  // FP4: likewise

  __device__ void fetch(const IndexKeyPlace& place, int l) {
    *this = {};
    if (place.values == nullptr) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      codes |= std::uint32_t{place.values[kFp4 ? (l + 32 * j) / 2 : l + 32 * j]} << (8 * j);
      if constexpr (kFp4) scales |= std::uint32_t{place.scales[j]} << (8 * j);
    }
  }
  __device__ float4 widen(int l) const {
    float x[4];
    if constexpr (!kFp4) {
      arith::e4m3x4_to_f32(codes, x);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const auto code = static_cast<std::uint8_t>(codes >> (8 * j + (l % 2 == 0 ? 0 : 4)) & 15U);
        x[j] = arith::e2m1_to_f32(code) * arith::ue8m0_to_f32(static_cast<std::uint8_t>(scales >> (8 * j)));
      }
    }
    return make_float4(x[0], x[1], x[2], x[3]);
  }
};

__device__ float f32_at(const std::uint8_t* at) {
  return arith::from_bits(at[0] | at[1] << 8 | at[2] << 16 | std::uint32_t{at[3]} << 24);
}

__device__ const std::uint8_t* pointer_of(const std::uint8_t* mine, int lane) {
  return reinterpret_cast<const std::uint8_t*>(
      __shfl_sync(0xFFFFFFFFU, reinterpret_cast<unsigned long long>(mine), lane));
}

/// Where lane l's four terms lie: lanes of one residue mod 8 belong to one thread, which visits them in the order
/// 0, 16, 8, 24 (plus the residue) of the tree.
__device__ int visit(int l) {
  const int m = l / 8;
  return (m & 1) << 1 | m >> 1;
}

constexpr int kGroup = 8;                         // threads that share a dot, one a residue; and heads of each
constexpr int kSliceStride = 20;                  // floats of one residue of a query; the gap spreads banks
constexpr int kQueryStride = kGroup * kSliceStride + 4;
constexpr int kLaneStride = 33;
constexpr int kQueryFloats = kPassHeads * kQueryStride;                              // while queries go to registers,
constexpr int kTileFloats = 2 * kTileKeys * kIndexDim + 2 * kTileKeys * kLaneStride;  // then keys and dots
constexpr int kFirstFloats = kQueryFloats > kTileFloats ? kQueryFloats : kTileFloats;
constexpr int kSharedBytes = (kFirstFloats + kBlockKeys * kLaneStride) * static_cast<int>(sizeof(float));

/// dot32 of eight query heads with a key, as far as one residue goes: the tree down to s = 8.
/// q[head][4 * visit + term].
__device__ __forceinline__ void residue_dots(const float (&q)[kGroup][16], const float* key, float (&out)[kGroup]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float lanes[2][kGroup];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int at = 2 * half + k;
      const float4 y = *reinterpret_cast<const float4*>(key + 32 * at);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float sum = arith::fma(q[h][4 * at], y.x, 0.0F);
        sum = arith::fma(q[h][4 * at + 1], y.y, sum);
        sum = arith::fma(q[h][4 * at + 2], y.z, sum);
        lanes[k][h] = arith::fma(q[h][4 * at + 3], y.w, sum);
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float pair = lanes[0][h] + lanes[1][h];      // s = 16
      out[h] = half == 0 ? pair : out[h] + pair;         // s = 8
    }
  }
}

/// The last three levels of the tree over the eight threads of a group; thread r ends with the dot of head r.
__device__ __forceinline__ float whole_dot(float (&part)[kGroup], int r) {
#pragma unroll
  for (int level = 0; level < 3; ++level) {
    const int s = 4 >> level;
    const bool high = (r & s) != 0;
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      if (h >= s) continue;
      const float keep = high ? part[h + s] : part[h];
      const float give = high ? part[h] : part[h + s];
      part[h] = keep + __shfl_xor_sync(0xFFFFFFFFU, give, s);
    }
  }
  return part[0];
}

/// A block scores 128 entries at a time for one token, 64 heads a pass: a warp takes 32 heads and half of the entries of a
/// tile. A thread holds eight heads' terms of the lanes of one residue mod 8 in registers; the eight threads of a
/// group then share out the eight heads, so that lane h mod 32 holds head h, as the head sum (dot32 over heads, or
/// with kBf16 sum32 of bf16 products, section 18) wants it.
template <bool kFp4, bool kBf16>
__global__ void __launch_bounds__(kThreads, kResident) score_kernel(ScoreProblem p) {
  extern __shared__ float4 shared[];
  float* const queries = reinterpret_cast<float*>(shared);       // [64][kQueryStride]
  float* const keys = queries;                                   // [2][32][128]
  float* const dots = keys + 2 * kTileKeys * kIndexDim;          // [2 halves of heads][32][kLaneStride]
  float* const sums = queries + kFirstFloats;                    // [128][kLaneStride]: lane sums over heads
  const std::int64_t token = blockIdx.x;
  const std::int32_t position = p.position[token];
  const int visible = position < 0 ? 0 : (position + 1) / 4;
  const int begin = static_cast<int>(blockIdx.y) * kBlockKeys;
  int first = begin;  // of the entries in work
  int count = 0;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = warp % 2;                                     // of the heads
  const int r = lane % kGroup;
  const std::int32_t* const table = p.tables + p.table_offset[token];

  RawTerms<kFp4> raw[kWarpKeys];
  const auto fetch = [&](int tile) {
    IndexKeyPlace place{};  // of the key that lane mod 8 names
    const int key = tile * kTileKeys + warp * kWarpKeys + lane % kWarpKeys;
    if (key < count) place = index_key_place(p.cache, table, first + key);
#pragma unroll
    for (int k = 0; k < kWarpKeys; ++k) {
      raw[k].fetch({pointer_of(place.values, k), pointer_of(place.scales, k)}, lane);
    }
  };
  const auto place_keys = [&](int tile) {
#pragma unroll
    for (int k = 0; k < kWarpKeys; ++k) {
      float* const key = keys + (tile % 2 * kTileKeys + warp * kWarpKeys + k) * kIndexDim;
      *reinterpret_cast<float4*>(key + 32 * visit(lane) + 4 * (lane % kGroup)) = raw[k].widen(lane);
    }
  };
  const auto weight_of = [&](int head) { return head < p.heads ? p.weights[token * p.heads + head] : 0.0F; };
  float q[kGroup][16];
  float w0 = 0.0F;
  float w1 = 0.0F;
  const auto take_queries = [&](int head0) {
    for (int i = static_cast<int>(threadIdx.x); i < kPassHeads * 32; i += kThreads) {
      const int head = i / 32;
      const int l = i % 32;
      const float4 terms = head0 + head < p.heads ? query_terms<kFp4>(p, token, head0 + head, l)
                                                  : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      *reinterpret_cast<float4*>(queries + head * kQueryStride + l % kGroup * kSliceStride + 4 * visit(l)) = terms;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<float4*>(&q[h][4 * i]) = *reinterpret_cast<const float4*>(
            queries + (32 * half + lane / kGroup * kGroup + h) * kQueryStride + r * kSliceStride + 4 * i);
      }
    }
    w0 = weight_of(head0 + lane);
    w1 = weight_of(head0 + 32 + lane);
    __syncthreads();
  };

  for (; first < visible; first += static_cast<int>(gridDim.y) * kBlockKeys) {
    count = min(visible - first, kBlockKeys);
    const int tiles = (count + kTileKeys - 1) / kTileKeys;
    for (int i = static_cast<int>(threadIdx.x); i < kBlockKeys * kLaneStride; i += kThreads) sums[i] = 0.0F;
    for (int head0 = 0; head0 < p.heads; head0 += kPassHeads) {
      fetch(0);
      if (first == begin || p.heads > kPassHeads) take_queries(head0);  // a single pass keeps them
      const bool one = head0 + lane < p.heads;
      const bool two = head0 + 32 + lane < p.heads;
      place_keys(0);
      __syncthreads();
      for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch(tile + 1);
        const int first_key = warp / 2 * (kTileKeys / 2);
        if (head0 + 32 * half < p.heads) {
          const float* const from = keys + (tile % 2 * kTileKeys + first_key) * kIndexDim + 4 * r;
          float* const to = dots + (half * kTileKeys + first_key) * kLaneStride + lane;
#pragma unroll 2
          for (int key = 0; key < kTileKeys / 2; ++key) {
            float part[kGroup];
            residue_dots(q, from + key * kIndexDim, part);
            to[key * kLaneStride] = whole_dot(part, r);
          }
        }
        if (tile + 1 < tiles) place_keys(tile + 1);
        __syncthreads();
        // Head lane l takes heads l and l + 32 of this pass.
        for (int key = warp; key < kTileKeys; key += kWarps) {
          float* const sum = sums + (tile * kTileKeys + key) * kLaneStride + lane;
          float a = *sum;
          const auto add = [&](int which, float w) {
            float dot = dots[(which * kTileKeys + key) * kLaneStride + lane];
            if constexpr (kBf16) dot = round_bf16(dot);
            dot = dot > 0.0F ? dot : 0.0F;
            a = kBf16 ? a + round_bf16(dot * w) : arith::fma(dot, w, a);
          };
          if (one) add(0, w0);
          if (two) add(1, w1);
          *sum = a;
        }
        __syncthreads();
      }
    }
    // A thread a key: the tree over the 32 lanes.
    const int key = static_cast<int>(threadIdx.x);
    if (key < count) {
      float lanes[32];
#pragma unroll
      for (int l = 0; l < 32; ++l) lanes[l] = sums[key * kLaneStride + l];
#pragma unroll
      for (int level = 0; level < 5; ++level) {
        const int s = 16 >> level;
#pragma unroll
        for (int l = 0; l < 16; ++l) {
          if (l < s) lanes[l] = lanes[l] + lanes[l + s];
        }
      }
      float score = lanes[0];
      if constexpr (kBf16) score = round_bf16(score);
      if constexpr (!kFp4) score = score * f32_at(index_key_place(p.cache, table, first + key).scales);
      p.scores[token * p.width + first + key] = score;
    }
    __syncthreads();
  }
}

template <bool kFp4, bool kBf16>
void launch(const ScoreProblem& p, std::int64_t tokens, cudaStream_t stream) {
  DSV4_CUDA(cudaFuncSetAttribute(score_kernel<kFp4, kBf16>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  // Many tokens fill the device; of few, each is shared out among blocks.
  const std::int64_t parts = std::clamp<std::int64_t>(kWaves / tokens, 1, (p.width + kBlockKeys - 1) / kBlockKeys);
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(parts));
  score_kernel<kFp4, kBf16><<<grid, kThreads, kSharedBytes, stream>>>(p);
  DSV4_LAUNCHED("score_kernel");
}

__global__ void visible_kernel(const std::int32_t* position, std::int32_t* visible, std::int64_t tokens) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t < tokens) visible[t] = (position[t] + 1) / 4;
}

}  // namespace

void indexer_score(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const StepLayout& layout = engine.layout();
  const std::int64_t tokens = layout.tokens;
  const DeviceTensor scores = engine.publish(call.layer, TensorId::scores, DType::float32, {tokens, layout.widest_c4});
  const DeviceTensor visible = engine.publish(call.layer, TensorId::visible, DType::int32, {tokens});
  if (tokens == 0) return;
  visible_kernel<<<static_cast<unsigned>((tokens + 255) / 256), 256, 0, engine.stream()>>>(
      layout.rows.position.device, visible.as<std::int32_t>(), tokens);
  DSV4_LAUNCHED("visible_kernel");
  if (layout.widest_c4 == 0) return;
  DSV4_CUDA(cudaMemsetAsync(scores.data, 0, scores.size_in_bytes(), engine.stream()));  // beyond visible: +0
  ScoreProblem p{};
  p.query_codes = engine.input(call.layer, TensorId::query_codes).as<std::uint8_t>();
  p.query_scales = engine.input(call.layer, TensorId::query_scales).data;
  p.weights = engine.input(call.layer, TensorId::query_weights).as<float>();
  p.position = layout.rows.position.device;
  p.table_offset = layout.rows.index_table.device;
  p.tables = layout.tables.device;
  p.cache = engine.cache(call.layer, Cache::index_entries);
  p.heads = engine.geometry().index_heads;
  p.width = layout.widest_c4;
  p.scores = scores.as<float>();
  const bool fp4 = engine.profile().get<IndexCache>() == IndexCache::fp4;
  const bool bf16 = engine.profile().get<IndexRound>() == IndexRound::bf16;
  const auto run = fp4 ? (bf16 ? launch<true, true> : launch<true, false>) : (bf16 ? launch<false, true> : launch<false, false>);
  run(p, tokens, engine.stream());
}

}  // namespace dsv4::gpu
