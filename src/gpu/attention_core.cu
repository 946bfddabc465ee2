/// attention.core: sparse attention with sink over window and compressed keys (docs/numerics.md 15, 18).
///
/// Three kernels over chunks of tokens: logits z (whole dots in a thread), softmax (one warp a token and head),
/// weighted sum (a thread a channel, keys in list order). List index i is window item i below W, else compressed
/// item i - W.
#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/sums.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr float kScale = 0.044194173F;  // 0x3D3504F3
static_assert(__builtin_bit_cast(std::uint32_t, kScale) == 0x3D3504F3U);
constexpr int kOnlineBlock = 64;                       // of list indices, section 18
constexpr std::int64_t kScratchBytes = std::int64_t{2} << 30;

struct CoreProblem {
  const std::uint16_t* q;  // [T, H, 512]
  const std::int32_t* window;
  const std::int32_t* compressed;
  std::int64_t compressed_width;
  CacheMemory window_pages, entry_pages;
  const float* sink;
  int heads;
  std::int64_t first_token;  // of the chunk
  int items;                 // list length: W + compressed width
  float* weights;            // [chunk, H, items]: z, then e (or bf16-rounded e)
  float* factors;            // [chunk, H, blocks of 64]: rescale before each block, or null
  float* denominators;       // [chunk, H]
  std::uint16_t* out;        // [T, H, 512]
  float* lse;                // [T, H]
  float empty_lse;
};

__device__ std::int32_t slot_of(const CoreProblem& p, std::int64_t token, int item) {
  return item < kWindow ? p.window[token * kWindow + item]
                        : p.compressed[token * p.compressed_width + item - kWindow];
}

/// Element of the dequantised 512-wide row in a slot.
__device__ float row_value(const CacheMemory& cache, std::int64_t slot, int element) {
  const auto* page = reinterpret_cast<const std::uint8_t*>(cache.data + slot / cache.page_rows * cache.pitch);
  const std::int64_t offset = slot % cache.page_rows;
  const std::uint8_t* row = page + offset * layout::kKvValueBytes;
  if (element < kNopeDim) {
    const std::uint8_t scale = page[std::int64_t{cache.page_rows} * layout::kKvValueBytes +
                                    offset * layout::kKvScaleBytes + element / layout::kKvBlock];
    return arith::e4m3_to_f32(row[element]) * arith::ue8m0_to_f32(scale);
  }
  const std::uint8_t* half = row + kNopeDim + 2 * (element - kNopeDim);
  return arith::bf16_to_f32(static_cast<std::uint16_t>(half[0] | (half[1] << 8)));
}

__device__ float key_value(const CoreProblem& p, int item, std::int32_t slot, int element) {
  return row_value(item < kWindow ? p.window_pages : p.entry_pages, slot, element);
}

// ---- logits

constexpr int kTileHeads = 64;
constexpr int kTileKeys = 32;
constexpr int kDotThreads = 128;
constexpr int kTerms = kHeadDim / 32;         // of a lane
constexpr int kHalfStride = kHeadDim / 2 + 4;  // sixteen lanes of a row, and padding

/// z = rn(dot32(q, k) * scale). Even lanes of all rows are staged for groups 0..3 of the tree, odd ones for 4..7.
__global__ void __launch_bounds__(kDotThreads) logits_kernel(CoreProblem p) {
  extern __shared__ float shared[];
  float* queries = shared;                            // [64][kHalfStride]
  float* keys = queries + kTileHeads * kHalfStride;   // [32][kHalfStride]
  __shared__ std::int32_t slots[kTileKeys];
  const std::int64_t token = p.first_token + blockIdx.y;
  const int first_item = static_cast<int>(blockIdx.x) * kTileKeys;
  const int first_head = static_cast<int>(blockIdx.z) * kTileHeads;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kTileKeys) {
    slots[thread] = first_item + thread < p.items ? slot_of(p, token, first_item + thread) : -1;
  }
  __syncthreads();

  const auto stage = [&](int group) {
    if (group != 0 && group != 4) return;
    const int odd = group / 4;
    __syncthreads();
    for (int i = thread; i < kTileHeads * kHeadDim / 2; i += kDotThreads) {
      const int head = i / (kHeadDim / 2);
      const int element = i % (kHeadDim / 2) * 2 + odd;
      const float value = first_head + head < p.heads
                              ? arith::bf16_to_f32(p.q[(token * p.heads + first_head + head) * kHeadDim + element])
                              : 0.0F;
      queries[head * kHalfStride + element % 32 / 2 * kTerms + element / 32] = value;
    }
    for (int i = thread; i < kTileKeys * kHeadDim / 2; i += kDotThreads) {
      const int key = i / (kHeadDim / 2);
      const int element = i % (kHeadDim / 2) * 2 + odd;
      keys[key * kHalfStride + element % 32 / 2 * kTerms + element / 32] =
          slots[key] < 0 ? 0.0F : key_value(p, first_item + key, slots[key], element);
    }
    __syncthreads();
  };
  const int row = thread / 32 * 16 + thread % 32 / 8;
  const int column = thread % 8;
  const auto lane_sums = [&](int lane, float(&sum)[16]) {
#pragma unroll
    for (int k = 0; k < 16; ++k) sum[k] = 0.0F;
#pragma unroll
    for (int term = 0; term < kTerms; term += 4) {
      float4 x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = *reinterpret_cast<const float4*>(queries + (row + 4 * i) * kHalfStride + lane / 2 * kTerms + term);
        y[i] = *reinterpret_cast<const float4*>(keys + (column + 8 * i) * kHalfStride + lane / 2 * kTerms + term);
      }
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        sum[k] = arith::fma(x[k / 4].x, y[k % 4].x, sum[k]);
        sum[k] = arith::fma(x[k / 4].y, y[k % 4].y, sum[k]);
        sum[k] = arith::fma(x[k / 4].z, y[k % 4].z, sum[k]);
        sum[k] = arith::fma(x[k / 4].w, y[k % 4].w, sum[k]);
      }
    }
  };
  float dots[16];
  thread_tree<16>(lane_sums, stage, dots);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const int head = first_head + row + k / 4 * 4;
    const int item = first_item + column + k % 4 * 8;
    if (head < p.heads && item < p.items) {
      p.weights[(std::int64_t{blockIdx.y} * p.heads + head) * p.items + item] = dots[k] * kScale;
    }
  }
}

// ---- softmax

/// Two passes: m = max z; e = exp(rn(z - m)) at its list index; L = sum32 over list indices.
__device__ void two_pass(const CoreProblem& p, std::int64_t token, float* z, float& m, float& total) {
  const int lane = threadIdx.x % 32;
  m = __int_as_float(0xFF800000);
  for (int i = lane; i < p.items; i += 32) {
    if (slot_of(p, token, i) >= 0) m = z[i] > m ? z[i] : m;
  }
  m = warp_max(m);
  float sum = 0.0F;
  for (int i = lane; i < p.items; i += 32) {
    if (slot_of(p, token, i) < 0) continue;
    z[i] = arith::exp(z[i] - m);
    sum = sum + z[i];
  }
  total = warp_tree(sum);
}

/// Blocks of 64 list indices with a running maximum; the weights of the sum are rounded to bf16.
__device__ void online(const CoreProblem& p, std::int64_t token, float* z, float* factors, float& m, float& total) {
  const int lane = threadIdx.x % 32;
  const float none = __int_as_float(0xFF800000);
  m = none;
  total = 0.0F;
  for (int base = 0, block = 0; base < p.items; base += kOnlineBlock, ++block) {
    float largest = none;
    for (int i = base + lane; i < min(base + kOnlineBlock, p.items); i += 32) {
      if (slot_of(p, token, i) >= 0) largest = z[i] > largest ? z[i] : largest;
    }
    largest = warp_max(largest);
    const float next = largest > m ? largest : m;
    const float factor = m == none ? 0.0F : arith::exp(m - next);
    float sum = 0.0F;
    for (int i = base + lane; i < min(base + kOnlineBlock, p.items); i += 32) {
      if (slot_of(p, token, i) < 0) continue;
      const float e = arith::exp(z[i] - next);
      sum = sum + e;
      z[i] = arith::bf16_to_f32(arith::f32_to_bf16(e));
    }
    total = arith::fma(total, factor, warp_tree(sum));
    if (lane == 0) factors[block] = factor;
    m = next;
  }
}

__global__ void softmax_kernel(CoreProblem p) {
  const int head = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  if (head >= p.heads) return;
  const std::int64_t token = p.first_token + blockIdx.y;
  const std::int64_t row = std::int64_t{blockIdx.y} * p.heads + head;
  const int lane = threadIdx.x % 32;
  int valid = 0;
  for (int i = lane; i < p.items; i += 32) valid |= slot_of(p, token, i) >= 0 ? 1 : 0;
  if (!__any_sync(0xFFFFFFFFU, valid)) {
    if (lane == 0) p.lse[token * p.heads + head] = p.empty_lse;
    return;
  }
  float m = 0.0F;
  float total = 0.0F;
  float* z = p.weights + row * p.items;
  if (p.factors != nullptr) {
    online(p, token, z, p.factors + row * ((p.items + kOnlineBlock - 1) / kOnlineBlock), m, total);
  } else {
    two_pass(p, token, z, m, total);
  }
  if (lane != 0) return;
  p.denominators[row] = total + arith::exp(p.sink[head] - m);
  p.lse[token * p.heads + head] = m + arith::log(total);
}

// ---- weighted sum

constexpr int kSumHeads = 16;
constexpr int kSumThreads = 128;  // four channels each
constexpr int kSumKeys = 16;      // staged at a time

/// O_c = fold over valid keys in list order of fma(e, v_c, O); before a block of section 18, O = rn(O * f).
__global__ void __launch_bounds__(kSumThreads) sum_kernel(CoreProblem p) {
  __shared__ float4 values[kSumKeys][kSumThreads];
  __shared__ float weights[kSumKeys][kSumHeads];
  __shared__ std::int32_t slots[kSumKeys];
  const std::int64_t token = p.first_token + blockIdx.y;
  const int first_head = static_cast<int>(blockIdx.x) * kSumHeads;
  const int heads = min(kSumHeads, p.heads - first_head);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = std::int64_t{blockIdx.y} * p.heads + first_head;
  const int blocks = (p.items + kOnlineBlock - 1) / kOnlineBlock;
  float4 sum[kSumHeads];
#pragma unroll
  for (int h = 0; h < kSumHeads; ++h) sum[h] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  bool any = false;
  for (int base = 0; base < p.items; base += kSumKeys) {
    const int count = min(kSumKeys, p.items - base);
    __syncthreads();
    if (thread < count) slots[thread] = slot_of(p, token, base + thread);
    __syncthreads();
    for (int key = 0; key < count; ++key) {
      if (slots[key] < 0) continue;
      values[key][thread] = make_float4(key_value(p, base + key, slots[key], 4 * thread),
                                        key_value(p, base + key, slots[key], 4 * thread + 1),
                                        key_value(p, base + key, slots[key], 4 * thread + 2),
                                        key_value(p, base + key, slots[key], 4 * thread + 3));
    }
    for (int i = thread; i < count * kSumHeads; i += kSumThreads) {
      const int h = i % kSumHeads;
      weights[i / kSumHeads][h] = h < heads ? p.weights[(row + h) * p.items + base + i / kSumHeads] : 0.0F;
    }
    __syncthreads();
    if (p.factors != nullptr && base % kOnlineBlock == 0) {
#pragma unroll
      for (int h = 0; h < kSumHeads; ++h) {
        const float f = h < heads ? p.factors[(row + h) * blocks + base / kOnlineBlock] : 0.0F;
        sum[h] = make_float4(sum[h].x * f, sum[h].y * f, sum[h].z * f, sum[h].w * f);
      }
    }
    for (int key = 0; key < count; ++key) {
      if (slots[key] < 0) continue;
      any = true;
      const float4 v = values[key][thread];
#pragma unroll
      for (int h = 0; h < kSumHeads; ++h) {
        const float e = weights[key][h];
        sum[h].x = arith::fma(e, v.x, sum[h].x);
        sum[h].y = arith::fma(e, v.y, sum[h].y);
        sum[h].z = arith::fma(e, v.z, sum[h].z);
        sum[h].w = arith::fma(e, v.w, sum[h].w);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kSumHeads; ++h) {
    if (h >= heads) break;
    const float den = any ? p.denominators[row + h] : 1.0F;
    std::uint16_t* out = p.out + (token * p.heads + first_head + h) * kHeadDim + 4 * thread;
    out[0] = arith::f32_to_bf16(__fdiv_rn(sum[h].x, den));
    out[1] = arith::f32_to_bf16(__fdiv_rn(sum[h].y, den));
    out[2] = arith::f32_to_bf16(__fdiv_rn(sum[h].z, den));
    out[3] = arith::f32_to_bf16(__fdiv_rn(sum[h].w, den));
  }
}

}  // namespace

void attention_core(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int heads = engine.geometry().heads;
  const LayerKind kind = engine.kind(call.layer);
  const DeviceTensor out = engine.publish(call.layer, TensorId::attention_out, DType::bfloat16, {tokens, heads, kHeadDim});
  const DeviceTensor lse = engine.publish(call.layer, TensorId::attention_lse, DType::float32, {tokens, heads});
  if (tokens == 0) return;

  CoreProblem p{};
  p.q = engine.input(call.layer, TensorId::q).as<std::uint16_t>();
  p.window_pages = engine.cache(call.layer, Cache::window);
  p.window = engine.checked(call.layer, TensorId::window_slots, p.window_pages.rows * p.window_pages.page_rows);
  if (has_compressor(kind)) {
    p.entry_pages = engine.cache(call.layer, Cache::entries);
    p.compressed =
        engine.checked(call.layer, TensorId::compressed_slots, p.entry_pages.rows * p.entry_pages.page_rows);
    p.compressed_width = engine.input(call.layer, TensorId::compressed_slots).shape[1];
  }
  p.sink = engine.weights(call.layer).sink;
  p.heads = heads;
  p.items = kWindow + static_cast<int>(p.compressed_width);
  p.out = out.as<std::uint16_t>();
  p.lse = lse.as<float>();
  p.empty_lse = engine.profile().get<EmptyLse>() == EmptyLse::plus_inf ? INFINITY : -INFINITY;
  const bool online = engine.profile().get<Softmax>() == Softmax::online64_bf16_p;

  const std::int64_t row_floats = std::int64_t{heads} * p.items;
  const std::int64_t chunk = std::clamp<std::int64_t>(kScratchBytes / 4 / row_floats, 1, std::min<std::int64_t>(tokens, 32768));
  const std::int64_t blocks = (p.items + kOnlineBlock - 1) / kOnlineBlock;
  p.weights = engine.memory().get<float>("scratch/attention_weights", static_cast<std::size_t>(chunk * row_floats));
  p.denominators = engine.memory().get<float>("scratch/attention_denominators", static_cast<std::size_t>(chunk * heads));
  if (online) p.factors = engine.memory().get<float>("scratch/attention_factors", static_cast<std::size_t>(chunk * heads * blocks));

  const int bytes = (kTileHeads + kTileKeys) * kHalfStride * static_cast<int>(sizeof(float));
  DSV4_CUDA(cudaFuncSetAttribute(logits_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    p.first_token = first;
    const auto count = static_cast<unsigned>(std::min(chunk, tokens - first));
    const dim3 tiles(static_cast<unsigned>((p.items + kTileKeys - 1) / kTileKeys), count,
                     static_cast<unsigned>((heads + kTileHeads - 1) / kTileHeads));
    logits_kernel<<<tiles, kDotThreads, static_cast<std::size_t>(bytes), engine.stream()>>>(p);
    DSV4_LAUNCHED("logits_kernel");
    softmax_kernel<<<dim3(static_cast<unsigned>((heads + 3) / 4), count), 128, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("softmax_kernel");
    sum_kernel<<<dim3(static_cast<unsigned>((heads + kSumHeads - 1) / kSumHeads), count), kSumThreads, 0,
                 engine.stream()>>>(p);
    DSV4_LAUNCHED("sum_kernel");
  }
}

}  // namespace dsv4::gpu
