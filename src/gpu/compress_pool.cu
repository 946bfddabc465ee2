/// compress.pool and indexer.pool: softmax over a window's rows and weighted sum, per channel (docs/numerics.md
/// 12.4), or the online C128 recurrence (12.5). Reads the state as it was before the step.
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/compressor_ids.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/online_step.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kHeld = 8;  // divides the rows of every window

struct PoolProblem {
  const float* kv;              // [T, channels] of this step
  const float* score;           // [T, channels] of this step, without APE
  const float* ape;             // [ratio, channels]
  const float* state;           // rows of [kv (channels) | score with APE (channels)]
  const std::int32_t* source;   // [entries, rows]
  const std::int32_t* position; // [entries] first position of the window
  std::int64_t entries;
  int rows, ratio, channels, d;
  float* pooled;                // [entries, d]
};

__device__ float score_of(const PoolProblem& p, std::int32_t source, int row, int column) {
  if (source < 0) return p.state[std::int64_t{-1 - source} * 2 * p.channels + p.channels + column];
  // Windows start at a multiple of the ratio, so a row's place in the window is its position mod ratio.
  return p.score[std::int64_t{source} * p.channels + column] + p.ape[row % p.ratio * p.channels + column];
}

__device__ float kv_of(const PoolProblem& p, std::int32_t source, int column) {
  if (source < 0) return p.state[std::int64_t{-1 - source} * 2 * p.channels + column];
  return p.kv[std::int64_t{source} * p.channels + column];
}

/// One thread an entry's channel; rows ascending in every sum. With overlap the first half of the rows, the
/// previous window, reads columns [0, d), the second half columns [d, 2d). Up to kHeld rows are read once and held
/// in registers; more are read twice, kHeld at a time.
__global__ void __launch_bounds__(128) pool_kernel(PoolProblem p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.entries * p.d) return;
  const std::int64_t entry = i / p.d;
  const int c = static_cast<int>(i % p.d);
  const std::int32_t* source = p.source + entry * p.rows;
  const bool overlap = p.rows > p.ratio;
  float score[kHeld];
  const auto bring = [&](int first) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int row = first + k;
      const std::int32_t from = source[row];
      score[k] = from == kSkipRow ? __int_as_float(0xFF800000)
                                  : score_of(p, from, row, c + (overlap && row >= p.ratio ? p.d : 0));
    }
  };
  float m = __int_as_float(0xFF800000);
  for (int first = 0; first < p.rows; first += kHeld) {
    bring(first);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) m = score[k] > m ? score[k] : m;
  }
  float den = 0.0F;
  float acc = 0.0F;
  for (int first = 0; first < p.rows; first += kHeld) {
    if (p.rows > kHeld) bring(first);
    float kv[kHeld];
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int row = first + k;
      const std::int32_t from = source[row];
      kv[k] = from == kSkipRow ? 0.0F : kv_of(p, from, c + (overlap && row >= p.ratio ? p.d : 0));
      score[k] = arith::exp(score[k] - m);
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (source[first + k] == kSkipRow) continue;
      den = den + score[k];
      acc = arith::fma(score[k], kv[k], acc);
    }
  }
  p.pooled[i] = __fdiv_rn(acc, den);
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
  p.entries = step.entries();
  p.ratio = ratio(kind);
  p.rows = kind == LayerKind::csa ? 2 * p.ratio : p.ratio;
  p.d = ids.d;
  p.channels = compressor_channels(kind, ids.d);
  p.pooled = pooled.as<float>();
  if (is_online(engine.config(), kind)) {
    const dim3 grid(static_cast<unsigned>((p.d + 127) / 128), static_cast<unsigned>(step.segments()));
    online_pool_kernel<<<grid, 128, 0, engine.stream()>>>(reinterpret_cast<const OnlineSegment*>(step.online.device), p);
    DSV4_LAUNCHED("online_pool_kernel");
    return;
  }
  const std::int64_t outputs = p.entries * p.d;
  pool_kernel<<<static_cast<unsigned>((outputs + 127) / 128), 128, 0, engine.stream()>>>(p);
  DSV4_LAUNCHED("pool_kernel");
}

}  // namespace dsv4::gpu
