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

constexpr int kThreads = 256;
constexpr int kShortRows = 8;       // two windows of 4
constexpr int kShortOutputs = 512;  // of a block
constexpr int kShortBlocks = 5;     // a multiprocessor
constexpr int kLongRows = 128;
constexpr int kLongOutputs = 32;
constexpr int kLongBlocks = 6;
static_assert(kShortRows * kShortOutputs == kLongRows * kLongOutputs);  // what a block brings

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

/// Starts the copy of four channels of a window's row to shared memory, from this step or from the state. For a skipped
/// row they come from row 0 of the step and are not used.
__device__ __forceinline__ void bring(const PoolProblem& p, std::int32_t source, int column, float* kv, float* score) {
  const bool skip = source == kSkipRow;
  const bool held = source < 0 && !skip;
  const std::int64_t at =
      skip ? 0 : held ? std::int64_t{-1 - source} * 2 * p.channels : std::int64_t{source} * p.channels;
  __pipeline_memcpy_async(kv, (held ? p.state : p.kv) + at + column, 16);
  __pipeline_memcpy_async(score, (held ? p.state + p.channels : p.score) + at + column, 16);
}

/// The score of a row: with APE where it is of this step, -inf where it is skipped.
__device__ __forceinline__ float whole_score(std::int32_t source, float score, float ape) {
  return source == kSkipRow ? kNone : source < 0 ? score : score + ape;
}

/// Ratio 4: a block takes 512 neighbouring outputs of [entries, kD], a thread one at a time, rows ascending in every
/// sum. The first half of the rows, the previous window, has columns [0, d), the second half columns [d, 2d). Windows
/// start at a multiple of the ratio, so a row's place in the window is its position mod ratio.
template <int kD>
__global__ void __launch_bounds__(kThreads, kShortBlocks) short_pool_kernel(PoolProblem p, std::int64_t outputs) {
  __shared__ float4 kv[kShortRows][kShortOutputs / 4];
  __shared__ float4 raw[kShortRows][kShortOutputs / 4];
  const std::int64_t first = std::int64_t{blockIdx.x} * kShortOutputs;
  const auto column = [](std::int64_t output, int row) {
    return static_cast<int>(output % kD) + (row < kShortRows / 2 ? 0 : kD);
  };
#pragma unroll
  for (int i = 0; i < kShortRows * kShortOutputs / 4; i += kThreads) {
    const int k = (i + static_cast<int>(threadIdx.x)) / (kShortOutputs / 4);
    const int vector = (i + static_cast<int>(threadIdx.x)) % (kShortOutputs / 4);
    const std::int64_t output = first + 4 * vector;
    if (output >= outputs) continue;
    bring(p, p.source[output / kD * kShortRows + k], column(output, k), &kv[k][vector].x, &raw[k][vector].x);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
#pragma unroll 1
  for (int o = static_cast<int>(threadIdx.x); o < kShortOutputs; o += kThreads) {
    const std::int64_t output = first + o;
    if (output >= outputs) return;
    std::int32_t from[kShortRows];
    float e[kShortRows];
    float m = kNone;
#pragma unroll
    for (int k = 0; k < kShortRows; ++k) {
      from[k] = p.source[output / kD * kShortRows + k];
      const float ape = p.ape[k % (kShortRows / 2) * p.channels + column(output, k)];
      e[k] = whole_score(from[k], reinterpret_cast<const float*>(raw[k])[o], ape);
      m = e[k] > m ? e[k] : m;
    }
#pragma unroll
    for (float& s : e) s = arith::exp(s - m);
    float den = 0.0F;
    float acc = 0.0F;
#pragma unroll
    for (int k = 0; k < kShortRows; ++k) {
      if (from[k] == kSkipRow) continue;
      den = den + e[k];
      acc = arith::fma(e[k], reinterpret_cast<const float*>(kv[k])[o], acc);
    }
    p.pooled[output] = __fdiv_rn(acc, den);
  }
}

/// Ratio 128: a block takes 32 channels of an entry. Each of its warps makes the exponentials of a run of rows; the
/// first warp adds all of them up, rows ascending. No row is skipped: a window has no predecessor, and nobody reads
/// what the padding of a graph gives.
__global__ void __launch_bounds__(kThreads, kLongBlocks) long_pool_kernel(PoolProblem p) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kHeld = kLongRows / kWarps;
  __shared__ float4 kv[kLongRows][kLongOutputs / 4];
  __shared__ float4 e[kLongRows][kLongOutputs / 4];  // scores first
  __shared__ float largest[kWarps][32];
  __shared__ std::int32_t from[kLongRows];
  const auto groups = static_cast<unsigned>(p.d / kLongOutputs);
  const std::int64_t entry = blockIdx.x / groups;
  const int first_channel = static_cast<int>(blockIdx.x % groups) * kLongOutputs;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kHeld;
  const auto item = [lane](float4(&rows)[kLongRows][kLongOutputs / 4], int row) -> float& {
    return reinterpret_cast<float*>(rows[row])[lane];
  };
#pragma unroll
  for (int i = 0; i < kLongRows * kLongOutputs / 4; i += kThreads) {
    const int row = (i + static_cast<int>(threadIdx.x)) / (kLongOutputs / 4);
    const int vector = static_cast<int>(threadIdx.x) % (kLongOutputs / 4);
    const std::int32_t source = p.source[entry * kLongRows + row];
    if (vector == 0) from[row] = source;
    bring(p, source, first_channel + 4 * vector, &kv[row][vector].x, &e[row][vector].x);
  }
  __pipeline_commit();
  float ape[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) ape[k] = p.ape[(first_row + k) * p.channels + first_channel + lane];
  __pipeline_wait_prior(0);
  __syncthreads();
  float score[kHeld];
  float m = kNone;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    score[k] = whole_score(from[first_row + k], item(e, first_row + k), ape[k]);
    m = score[k] > m ? score[k] : m;
  }
  largest[threadIdx.x / 32][lane] = m;
  __syncthreads();
#pragma unroll
  for (const float(&part)[32] : largest) m = part[lane] > m ? part[lane] : m;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) item(e, first_row + k) = arith::exp(score[k] - m);
  __syncthreads();
  if (first_row != 0) return;
  float den = 0.0F;
  float acc = 0.0F;
#pragma unroll 32
  for (int row = 0; row < kLongRows; ++row) {
    den = den + item(e, row);
    acc = arith::fma(item(e, row), item(kv, row), acc);
  }
  p.pooled[entry * p.d + first_channel + lane] = __fdiv_rn(acc, den);
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
  const std::int64_t outputs = step.entries() * ids.d;
  const auto blocks = [outputs](int each) { return static_cast<unsigned>((outputs + each - 1) / each); };
  static_assert(kHeadDim % kLongOutputs == 0);
  if (kind == LayerKind::csa) {
    const auto kernel = ids.indexer ? short_pool_kernel<kIndexDim> : short_pool_kernel<kHeadDim>;
    kernel<<<blocks(kShortOutputs), kThreads, 0, engine.stream()>>>(p, outputs);
    DSV4_LAUNCHED("short_pool_kernel");
  } else {
    long_pool_kernel<<<blocks(kLongOutputs), kThreads, 0, engine.stream()>>>(p);
    DSV4_LAUNCHED("long_pool_kernel");
  }
}

}  // namespace dsv4::gpu
