/// compress.pool and indexer.pool: softmax over a window's rows and weighted sum, per channel (docs/numerics.md
/// 12.4), or the online C128 recurrence (12.5). Reads the state as it was before the step.
#include <cuda_pipeline_primitives.h>

#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/compressor_ids.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/online_step.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kShortRows = 8;  // two windows of 4
constexpr int kShortThreads = 128;
constexpr int kLongRows = 128;
constexpr int kLongParts = 16;

struct PoolProblem {
  const float* kv;              // [T, channels] of this step
  const float* score;           // [T, channels] of this step, without APE
  const float* ape;             // [ratio, channels]
  const float* state;           // rows of [kv (channels) | score with APE (channels)]
  const std::int32_t* source;   // [entries, rows]
  int channels, d;
  float* pooled;                // [entries, d]
};

constexpr float kNone = -__builtin_huge_valf();

/// Where the first channel of a window's row lies: in this step, or in the state. For a skipped row it is row 0 of the
/// step, so that all reads of a thread can be under way at once.
struct RowPlace {
  const float* kv;
  const float* score;
};
__device__ __forceinline__ RowPlace row_place(const PoolProblem& p, std::int32_t source) {
  const bool skip = source == kSkipRow;
  const bool held = source < 0 && !skip;
  const std::int64_t at =
      skip ? 0 : held ? std::int64_t{-1 - source} * 2 * p.channels : std::int64_t{source} * p.channels;
  return {(held ? p.state : p.kv) + at, (held ? p.state + p.channels : p.score) + at};
}

/// The score of a row: with APE where it is of this step, -inf where it is skipped.
__device__ __forceinline__ float whole_score(std::int32_t source, float score, float ape) {
  return source == kSkipRow ? kNone : source < 0 ? score : score + ape;
}

/// Ratio 4: one thread a channel of an entry, rows ascending in every sum. The first half of the rows, the previous
/// window, has columns [0, d), the second half columns [d, 2d). Windows start at a multiple of the ratio, so a row's
/// place in the window is its position mod ratio.
__global__ void __launch_bounds__(kShortThreads) short_pool_kernel(PoolProblem p) {
  const int c = static_cast<int>(blockIdx.y) * kShortThreads + static_cast<int>(threadIdx.x);
  const std::int32_t* const source = p.source + std::int64_t{blockIdx.x} * kShortRows;
  std::int32_t from[kShortRows];
  float score[kShortRows];
  float kv[kShortRows];
  float ape[kShortRows];
#pragma unroll
  for (int k = 0; k < kShortRows; ++k) from[k] = source[k];
#pragma unroll
  for (int k = 0; k < kShortRows; ++k) {
    const int column = c + (k < kShortRows / 2 ? 0 : p.d);
    const RowPlace place = row_place(p, from[k]);
    kv[k] = place.kv[column];
    score[k] = place.score[column];
    ape[k] = p.ape[k % (kShortRows / 2) * p.channels + column];
  }
  float m = kNone;
#pragma unroll
  for (int k = 0; k < kShortRows; ++k) {
    score[k] = whole_score(from[k], score[k], ape[k]);
    m = score[k] > m ? score[k] : m;
  }
#pragma unroll
  for (float& s : score) s = arith::exp(s - m);
  float den = 0.0F;
  float acc = 0.0F;
#pragma unroll
  for (int k = 0; k < kShortRows; ++k) {
    if (from[k] == kSkipRow) continue;
    den = den + score[k];
    acc = arith::fma(score[k], kv[k], acc);
  }
  p.pooled[std::int64_t{blockIdx.x} * p.d + c] = __fdiv_rn(acc, den);
}

/// Ratio 128: a block takes 32 channels of an entry. Each of its warps reads a run of the rows and makes their
/// exponentials; the first warp adds all of them up, rows ascending. No row is skipped: a window has no predecessor, and
/// nobody reads what the padding of a graph gives.
__global__ void __launch_bounds__(32 * kLongParts, 3) long_pool_kernel(PoolProblem p) {
  constexpr int kHeld = kLongRows / kLongParts;
  __shared__ float kv[kLongRows][32];  // past the registers
  __shared__ float e[kLongRows][32];
  __shared__ float largest[kLongParts][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * kHeld;
  const int c = static_cast<int>(blockIdx.y) * 32 + lane;
  const std::int32_t* const source = p.source + std::int64_t{blockIdx.x} * kLongRows + first;
  std::int32_t from[kHeld];
  float score[kHeld];
  float ape[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) from[k] = source[k];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const RowPlace place = row_place(p, from[k]);
    __pipeline_memcpy_async(&kv[first + k][lane], place.kv + c, sizeof(float));
    score[k] = place.score[c];
    ape[k] = p.ape[(first + k) * p.channels + c];
  }
  __pipeline_commit();
  float m = kNone;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    score[k] = whole_score(from[k], score[k], ape[k]);
    m = score[k] > m ? score[k] : m;
  }
  largest[threadIdx.x / 32][lane] = m;
  __syncthreads();
#pragma unroll
  for (const float(&part)[32] : largest) m = part[lane] > m ? part[lane] : m;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) e[first + k][lane] = arith::exp(score[k] - m);
  __pipeline_wait_prior(0);
  __syncthreads();
  if (first != 0) return;
  float den = 0.0F;
  float acc = 0.0F;
#pragma unroll 32
  for (int row = 0; row < kLongRows; ++row) {
    den = den + e[row][lane];
    acc = arith::fma(e[row][lane], kv[row][lane], acc);
  }
  p.pooled[std::int64_t{blockIdx.x} * p.d + c] = __fdiv_rn(acc, den);
}

/// One thread a channel of one request's rows.
__global__ void online_pool_kernel(const OnlineSegment* segments, PoolProblem p) {
  const OnlineSegment segment = segments[blockIdx.y];
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= p.d) return;
  OnlineState s{};
  if (segment.position % 128 != 0) {
    const float* row = p.state + std::int64_t{segment.slot} * 3 * p.d;
    s = {row[c], row[p.d + c], row[2 * p.d + c]};
  }
  std::int32_t entry = segment.first_entry;
  for (std::int32_t k = 0; k < segment.rows; ++k) {
    const int position = segment.position + k;
    const std::int64_t t = segment.first_row + k;
    s = online_step(s, position % 128, p.kv[t * p.d + c], p.score[t * p.d + c] + p.ape[position % 128 * p.d + c]);
    if (position % 128 == 127 && position >= segment.first_closing) p.pooled[std::int64_t{entry++} * p.d + c] = __fdiv_rn(s.a, s.t);
  }
}

}  // namespace

void compress_pool(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const CompressorIds ids = compressor_ids(call.stage);
  const LayerKind kind = engine.kind(call.layer);
  const CompressorStep& step = engine.layout().compressor(kind, ids.indexer);
  const DeviceTensor pooled = engine.publish(call.layer, ids.pooled, DType::float32, {step.entries(), ids.d});
  engine.publish_ints(call.layer, ids.pool_request, step.entry_request);
  engine.publish_ints(call.layer, ids.pool_index, step.entry_index);
  if (step.entries() == 0) return;

  PoolProblem p{};
  p.kv = engine.input(call.layer, ids.kv).as<float>();
  p.score = engine.input(call.layer, ids.score).as<float>();
  p.ape = compressor_weights(engine, call.layer, ids).ape;
  p.state = reinterpret_cast<const float*>(engine.cache(call.layer, ids.state).data);
  p.source = step.source.device;
  p.d = ids.d;
  p.channels = compressor_channels(kind, ids.d);
  p.pooled = pooled.as<float>();
  if (is_online(engine.config(), kind)) {
    const dim3 grid(static_cast<unsigned>((p.d + 127) / 128), static_cast<unsigned>(step.segments()));
    online_pool_kernel<<<grid, 128, 0, engine.stream()>>>(reinterpret_cast<const OnlineSegment*>(step.online.device), p);
    DSV4_LAUNCHED("online_pool_kernel");
    return;
  }
  const auto grid = [&](int channels) {
    return dim3(static_cast<unsigned>(step.entries()), static_cast<unsigned>(ids.d / channels));
  };
  static_assert(kIndexDim % kShortThreads == 0 && kHeadDim % kShortThreads == 0);
  if (kind == LayerKind::csa) {
    short_pool_kernel<<<grid(kShortThreads), kShortThreads, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("short_pool_kernel");
  } else {
    long_pool_kernel<<<grid(32), 32 * kLongParts, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("long_pool_kernel");
  }
}

}  // namespace dsv4::gpu
