/// attention.core: sparse attention with sink over window and compressed keys (docs/numerics.md 15, 18).
///
/// Four kernels over chunks of tokens: places of the keys, logits z (a warp a dot, 32 at a time), softmax (one warp a
/// token and head), weighted sum (a thread a channel, keys in list order).
#include "gpu/attention_core.cuh"

#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "gpu/check.cuh"
#include "gpu/sums.cuh"

namespace dsv4::gpu {
namespace {

constexpr std::int64_t kScratchBytes = std::int64_t{2} << 30;

__device__ std::int32_t slot_of(const CoreProblem& p, std::int64_t token, int item) {
  return item < kWindow ? p.window[token * kWindow + item]
                        : p.compressed[token * p.compressed_width + item - kWindow];
}

__global__ void places_kernel(CoreProblem p) {
  const int item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (item >= p.items) return;
  const std::int32_t slot = slot_of(p, p.first_token + blockIdx.x, item);
  KeyPlace place{};
  if (slot >= 0) {
    const CacheMemory& cache = item < kWindow ? p.window_pages : p.entry_pages;
    const auto* page = reinterpret_cast<const std::uint8_t*>(cache.data + slot / cache.page_rows * cache.pitch);
    const std::int64_t offset = slot % cache.page_rows;
    place = {page + offset * layout::kKvValueBytes,
             page + std::int64_t{cache.page_rows} * layout::kKvValueBytes + offset * layout::kKvScaleBytes};
  }
  p.places[std::int64_t{blockIdx.x} * p.items + item] = place;
}

/// Two passes: m = max z; e = exp(rn(z - m)) at its list index; L = sum32 over list indices. kAhead items of a lane
/// are on their way at once; z of an invalid item is read and means nothing.
__device__ void two_pass(const CoreProblem& p, std::int64_t token, float* z, float& m, float& total) {
  constexpr int kAhead = 4;
  constexpr float kNone = -__builtin_huge_valf();
  const int lane = threadIdx.x % 32;
  const auto take = [&](int first, float(&values)[kAhead], bool(&valid)[kAhead]) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int item = first + 32 * k;
      const bool listed = item < p.items;
      values[k] = listed ? z[item] : kNone;
      valid[k] = listed && slot_of(p, token, item) >= 0;
    }
  };
  float values[kAhead];
  bool valid[kAhead];
  m = kNone;
  for (int i = lane; i < p.items; i += 32 * kAhead) {
    take(i, values, valid);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) m = valid[k] && values[k] > m ? values[k] : m;
  }
  m = warp_max(m);
  float sum = 0.0F;
  for (int i = lane; i < p.items; i += 32 * kAhead) {
    take(i, values, valid);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) values[k] = arith::exp(valid[k] ? values[k] - m : 0.0F);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (!valid[k]) continue;
      z[i + 32 * k] = values[k];
      sum = sum + values[k];
    }
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

constexpr int kWarps = 4;  // a block of softmax

__global__ void softmax_kernel(CoreProblem p) {
  const int head = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / 32);
  if (head >= p.heads) return;
  const std::int64_t token = p.first_token + blockIdx.x;
  const std::int64_t row = std::int64_t{blockIdx.x} * p.heads + head;
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
  const std::int64_t row_floats = std::int64_t{heads} * p.items;
  const std::int64_t chunk = std::clamp<std::int64_t>(kScratchBytes / 4 / row_floats, 1, tokens);
  const std::int64_t blocks = (p.items + kOnlineBlock - 1) / kOnlineBlock;
  const auto scratch = [&](const char* name, std::int64_t count) {
    return engine.memory().get<float>(std::string("scratch/attention_") + name, static_cast<std::size_t>(count));
  };
  p.places = engine.memory().get<KeyPlace>("scratch/attention_places", static_cast<std::size_t>(chunk * p.items));
  p.weights = scratch("weights", chunk * row_floats);
  p.denominators = scratch("denominators", chunk * heads);
  if (engine.profile().get<Softmax>() == Softmax::online64_bf16_p) p.factors = scratch("factors", chunk * heads * blocks);

  for (p.first_token = 0; p.first_token < tokens; p.first_token += chunk) {
    p.tokens = std::min(chunk, tokens - p.first_token);
    const dim3 items(static_cast<unsigned>(p.tokens), static_cast<unsigned>((p.items + 127) / 128));
    places_kernel<<<items, 128, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("places_kernel");
    attention_logits(p, engine.stream());
    const dim3 rows(static_cast<unsigned>(p.tokens), static_cast<unsigned>((heads + kWarps - 1) / kWarps));
    softmax_kernel<<<rows, 32 * kWarps, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("softmax_kernel");
    attention_sum(p, engine.stream());
  }
}

}  // namespace dsv4::gpu
