/// indexer.score: ReLU(q . k) weighted over heads, visible entries only (docs/numerics.md 13, 18).
#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/dot_tile.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr int kKeys = 32;   // a tile
constexpr int kHeads = 64;  // a pass: four warps of 16
constexpr int kThreads = 128;
using Form = LaneMajor<kIndexDim>;

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

template <bool kFp4>
__device__ float query_value(const ScoreProblem& p, std::int64_t token, int head, int element) {
  const std::int64_t row = token * p.heads + head;
  const std::uint8_t code = p.query_codes[row * kIndexDim + element];
  if constexpr (!kFp4) return arith::e4m3_to_f32(code);
  const auto* scales = static_cast<const std::uint8_t*>(p.query_scales);
  return arith::e2m1_to_f32(code) * arith::ue8m0_to_f32(scales[row * 4 + element / 32]);
}

template <bool kFp4>
__device__ float key_value(const CacheMemory& cache, std::int64_t slot, int element) {
  const auto* page = reinterpret_cast<const std::uint8_t*>(cache.data + slot / cache.page_rows * cache.pitch);
  const std::int64_t offset = slot % cache.page_rows;
  if constexpr (!kFp4) return arith::e4m3_to_f32(page[offset * cache.value_bytes + element]);
  const std::uint8_t pair = page[offset * cache.value_bytes + element / 2];
  const std::uint8_t code = element % 2 == 0 ? pair & 15 : pair >> 4;
  const std::uint8_t scale =
      page[std::int64_t{cache.page_rows} * cache.value_bytes + offset * cache.scale_bytes + element / 32];
  return arith::e2m1_to_f32(code) * arith::ue8m0_to_f32(scale);
}

__device__ float key_scale(const CacheMemory& cache, std::int64_t slot) {
  const std::byte* page = cache.data + slot / cache.page_rows * cache.pitch;
  const std::byte* at = page + std::int64_t{cache.page_rows} * cache.value_bytes + slot % cache.page_rows * cache.scale_bytes;
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(at[i]) << (8 * i);
  return arith::from_bits(bits);
}

__device__ float round_bf16(float x) { return arith::bf16_to_f32(arith::f32_to_bf16(x)); }

/// A block scores 32 entries for one token. The head sum is dot32 over heads: its 32 lane sums are kept over the
/// passes of 64 heads (lanes h mod 32, heads ascending) and added as a tree at the end. With kBf16 (section 18)
/// every step is rounded to bf16 and the head sum is sum32.
template <bool kFp4, bool kBf16>
__global__ void __launch_bounds__(kThreads) score_kernel(ScoreProblem p) {
  extern __shared__ float shared[];
  float* queries = shared;                              // [64][stride]
  float* keys = queries + kHeads * Form::kStride;       // [32][stride]
  float* dots = keys + kKeys * Form::kStride;           // [64][33]
  float* lanes = dots + kHeads * (kKeys + 1);           // [32 head lanes][33]
  __shared__ std::int64_t slots[kKeys];
  const std::int64_t token = blockIdx.y;
  const std::int32_t position = p.position[token];
  const int visible = position < 0 ? 0 : (position + 1) / 4;
  const int first = static_cast<int>(blockIdx.x) * kKeys;
  if (first >= visible) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kKeys) {
    const int entry = first + thread;
    const std::int32_t* table = p.tables + p.table_offset[token];
    slots[thread] = entry < visible ? std::int64_t{table[entry / p.cache.page_rows]} * p.cache.page_rows + entry % p.cache.page_rows : -1;
  }
  __syncthreads();
  for (int i = thread; i < kKeys * kIndexDim; i += kThreads) {
    const std::int64_t slot = slots[i / kIndexDim];
    keys[i / kIndexDim * Form::kStride + Form::at(i % kIndexDim)] = slot < 0 ? 0.0F : key_value<kFp4>(p.cache, slot, i % kIndexDim);
  }
  for (int i = thread; i < 32 * (kKeys + 1); i += kThreads) lanes[i] = 0.0F;

  for (int head0 = 0; head0 < p.heads; head0 += kHeads) {
    const int count = min(kHeads, p.heads - head0);
    __syncthreads();
    for (int i = thread; i < kHeads * kIndexDim; i += kThreads) {
      const int head = i / kIndexDim;
      queries[head * Form::kStride + Form::at(i % kIndexDim)] =
          head < count ? query_value<kFp4>(p, token, head0 + head, i % kIndexDim) : 0.0F;
    }
    __syncthreads();
    const int warp = thread / 32;
    const int row = warp * 16 + thread % 32 / 8;
    const int column = thread % 8;
    if (warp * 16 < count) {
      float t[16];
      dot_tile<kIndexDim>(queries, keys, row, column, t);
#pragma unroll
      for (int k = 0; k < 16; ++k) dots[(row + k / 4 * 4) * (kKeys + 1) + column + k % 4 * 8] = t[k];
    }
    __syncthreads();
    // Head lane l takes heads l and l + 32 of this pass; threads share out (lane, key).
    for (int i = thread; i < 32 * kKeys; i += kThreads) {
      const int lane = i / kKeys;
      const int key = i % kKeys;
      float sum = lanes[lane * (kKeys + 1) + key];
      for (int head = lane; head < count; head += 32) {
        float t = dots[head * (kKeys + 1) + key];
        if constexpr (kBf16) t = round_bf16(t);
        t = t > 0.0F ? t : 0.0F;
        const float w = p.weights[token * p.heads + head0 + head];
        if constexpr (kBf16) {
          sum = sum + round_bf16(t * w);
        } else {
          sum = arith::fma(t, w, sum);
        }
      }
      lanes[lane * (kKeys + 1) + key] = sum;
    }
  }
  __syncthreads();
  for (int s = 16; s > 0; s /= 2) {
    for (int i = thread; i < s * kKeys; i += kThreads) {
      const int at = i / kKeys * (kKeys + 1) + i % kKeys;
      lanes[at] = lanes[at] + lanes[at + s * (kKeys + 1)];
    }
    __syncthreads();
  }
  if (thread < kKeys && slots[thread] >= 0) {
    float score = lanes[thread];
    if constexpr (kBf16) score = round_bf16(score);
    if constexpr (!kFp4) score = score * key_scale(p.cache, slots[thread]);
    p.scores[token * p.width + first + thread] = score;
  }
}

template <bool kFp4, bool kBf16>
void launch(const ScoreProblem& p, std::int64_t tokens, cudaStream_t stream) {
  const int bytes = static_cast<int>(sizeof(float)) * ((kHeads + kKeys) * Form::kStride + (kHeads + 32) * (kKeys + 1));
  DSV4_CUDA(cudaFuncSetAttribute(score_kernel<kFp4, kBf16>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(static_cast<unsigned>((p.width + kKeys - 1) / kKeys), static_cast<unsigned>(tokens));
  score_kernel<kFp4, kBf16><<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(p);
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
