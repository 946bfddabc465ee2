/// compress.state and indexer.state: rows of kv and score (with APE) into the compressor state (docs/numerics.md
/// 12.2, 12.3), or the online C128 state (12.5).
#include "gpu/check.cuh"
#include "gpu/compressor_ids.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/online_step.cuh"

namespace dsv4::gpu {
namespace {

struct StateProblem {
  const float* kv;
  const float* score;
  const float* ape;
  const std::int32_t* position;  // [T]
  int ratio, channels;
  float* state;
};

/// One thread four channels of a row.
__global__ void state_kernel(StateProblem p, const std::int32_t* rows, const std::int32_t* slots, std::int64_t count,
                             float4* out_kv, float4* out_score) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int vectors = p.channels / 4;
  if (i >= count * vectors) return;
  const std::int64_t k = i / vectors;
  const int c = static_cast<int>(i % vectors);
  if (slots[k] < 0) return;  // padding
  const std::int64_t t = rows[k];
  const float4 kv = reinterpret_cast<const float4*>(p.kv)[t * vectors + c];
  const float4 raw = reinterpret_cast<const float4*>(p.score)[t * vectors + c];
  const float4 ape = reinterpret_cast<const float4*>(p.ape)[p.position[t] % p.ratio * vectors + c];
  const float4 score = make_float4(raw.x + ape.x, raw.y + ape.y, raw.z + ape.z, raw.w + ape.w);
  out_kv[i] = kv;
  out_score[i] = score;
  float4* const row = reinterpret_cast<float4*>(p.state) + std::int64_t{slots[k]} * 2 * vectors;
  row[c] = kv;
  row[vectors + c] = score;
}

/// One thread a channel of one request; every row of a verify step goes to a bank of its own.
__global__ void online_state_kernel(StateProblem p, const OnlineSegment* segments, float* out_max, float* out_sum,
                                    float* out_kv) {
  const OnlineSegment segment = segments[blockIdx.y];
  const int d = p.channels;
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= d) return;
  OnlineState s{};
  float* bank = p.state + std::int64_t{segment.slot} * 3 * d;
  if (segment.position % 128 != 0) s = {bank[c], bank[d + c], bank[2 * d + c]};
  for (std::int32_t k = 0; k < segment.rows; ++k) {
    const int position = segment.position + k;
    const std::int64_t t = segment.first_row + k;
    s = online_step(s, position % 128, p.kv[t * d + c], p.score[t * d + c] + p.ape[position % 128 * d + c]);
    if (segment.bank_step == 0 && k + 1 < segment.rows) continue;  // only the last state of a committed step stays
    float* row = bank + std::int64_t{segment.bank_step} * (1 + k) * 3 * d;
    row[c] = s.m;
    row[d + c] = s.t;
    row[2 * d + c] = s.a;
    const std::int64_t out = segment.first_state_row + segment.bank_step * k;
    out_max[out * d + c] = s.m;
    out_sum[out * d + c] = s.t;
    out_kv[out * d + c] = s.a;
  }
}

}  // namespace

void compress_state(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const CompressorIds ids = compressor_ids(call.stage);
  const LayerKind kind = engine.kind(call.layer);
  const CompressorStep& step = engine.layout().compressor(kind, ids.indexer);
  const std::int64_t rows = step.state_row.size();
  const std::int64_t channels = compressor_channels(kind, ids.d);
  const bool online = is_online(engine.config(), kind);

  StateProblem p{};
  p.kv = engine.input(call.layer, ids.kv).as<float>();
  p.score = engine.input(call.layer, ids.score).as<float>();
  p.ape = compressor_weights(engine, call.layer, ids).ape;
  p.position = engine.layout().rows.position.device;
  p.ratio = ratio(kind);
  p.channels = static_cast<int>(channels);
  p.state = reinterpret_cast<float*>(engine.cache(call.layer, ids.state).data);
  const DeviceTensor kv = engine.publish(call.layer, ids.state_kv, DType::float32, {rows, channels});
  if (online) {
    const DeviceTensor max = engine.publish(call.layer, TensorId::compress_state_max, DType::float32, {rows, channels});
    const DeviceTensor sum = engine.publish(call.layer, TensorId::compress_state_sum, DType::float32, {rows, channels});
    if (rows > 0) {
      const dim3 grid(static_cast<unsigned>((channels + 127) / 128), static_cast<unsigned>(step.segments()));
      online_state_kernel<<<grid, 128, 0, engine.stream()>>>(
          p, reinterpret_cast<const OnlineSegment*>(step.online.device), max.as<float>(), sum.as<float>(),
          kv.as<float>());
      DSV4_LAUNCHED("online_state_kernel");
    }
  } else {
    const DeviceTensor score = engine.publish(call.layer, ids.state_score, DType::float32, {rows, channels});
    if (rows > 0) {
      state_kernel<<<static_cast<unsigned>((rows * channels / 4 + 255) / 256), 256, 0, engine.stream()>>>(
          p, step.state_row.device, step.state_slot.device, rows, kv.as<float4>(), score.as<float4>());
      DSV4_LAUNCHED("state_kernel");
    }
  }
  engine.publish_ints(call.layer, ids.state_slot, step.state_slot);
  engine.publish_ints(call.layer, ids.state_token, step.state_row);
  using enum TensorId;
  engine.note_writes(call.layer, call.stage, ids.state,
                     online ? std::vector{compress_state_max, compress_state_sum, compress_state_kv}
                            : std::vector{ids.state_kv, ids.state_score});
}

}  // namespace dsv4::gpu
