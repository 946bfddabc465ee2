/// compress.project and indexer.project: wkv and wgate of a compressor, f32 out (docs/numerics.md 12.1).
#include "gpu/compressor_ids.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

void compress_project(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const CompressorIds ids = compressor_ids(call.stage);
  const std::int64_t tokens = engine.layout().tokens;
  const std::int64_t channels = compressor_channels(engine.kind(call.layer), ids.d);
  const DeviceCompressor& weights = compressor_weights(engine, call.layer, ids);
  const WideOperand x = widen_rows({nullptr, nullptr, engine.input(call.layer, TensorId::hidden).as<std::uint16_t>()},
                                   tokens, engine.geometry().dim, engine.memory(), engine.stream());
  const DeviceTensor kv = engine.publish(call.layer, ids.kv, DType::float32, {tokens, channels});
  linear(x, weights.wkv, {nullptr, kv.as<float>(), channels}, engine.memory(), engine.stream());
  const DeviceTensor score = engine.publish(call.layer, ids.score, DType::float32, {tokens, channels});
  linear(x, weights.wgate, {nullptr, score.as<float>(), channels}, engine.memory(),
         engine.stream());
}

}  // namespace dsv4::gpu
