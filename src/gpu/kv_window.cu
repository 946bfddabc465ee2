/// kv.window: wkv, kv_norm, RoPE, FP8 quantisation, insert into the window pages (docs/numerics.md 11).
#include "gpu/cuda_engine.cuh"
#include "gpu/kv_row.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {

void kv_window(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const StepLayout& layout = engine.layout();
  const std::int64_t tokens = layout.tokens;
  const DeviceWeights& weights = engine.weights(call.layer);
  const Activations x{engine.input(call.layer, TensorId::hidden_codes).as<std::uint8_t>(),
                      engine.input(call.layer, TensorId::hidden_scales).as<std::uint8_t>(), nullptr, 0};
  auto* raw = engine.memory().get<std::uint16_t>("scratch/kv_raw", static_cast<std::size_t>(tokens) * kHeadDim);
  linear(x, tokens, weights.wkv, 0, kHeadDim, {raw, nullptr, kHeadDim}, engine.memory(), engine.stream());
  const DeviceTensor normed = engine.publish(call.layer, TensorId::window_normed, DType::bfloat16, {tokens, kHeadDim});
  rms_norm(raw, weights.kv_norm, normed.as<std::uint16_t>(), tokens, kHeadDim, engine.geometry().eps, engine.stream());
  const DeviceTensor kv = engine.publish(call.layer, TensorId::window_kv, DType::bfloat16, {tokens, kHeadDim});
  const RopeRows table = engine.token_rope(call.layer);
  rope(normed.as<std::uint16_t>(), kv.as<std::uint16_t>(), tokens, 1, kHeadDim, table.cosines, table.sines, false,
       engine.stream());

  const CacheMemory& cache = engine.cache(call.layer, Cache::window);
  publish_kv_rows(engine, call.layer,
                  {TensorId::window_codes, TensorId::window_rope, TensorId::window_scales, TensorId::window_page_bytes},
                  kv.as<std::uint16_t>(), tokens, cache, layout.rows.window_slot.device);
  engine.note_writes(call.layer, call.stage, Cache::window,
                     engine.input(call.layer, TensorId::window_page_bytes).data, tokens, layout::kKvRowBytes);
}

}  // namespace dsv4::gpu
