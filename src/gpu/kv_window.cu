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
  const WideOperand x = widen_rows({engine.input(call.layer, TensorId::hidden_codes).as<std::uint8_t>(),
                                    engine.input(call.layer, TensorId::hidden_scales).as<std::uint8_t>(), nullptr},
                                   tokens, engine.geometry().dim, engine.memory(), engine.stream());
  auto* raw = engine.memory().get<std::uint16_t>("scratch/kv_raw", static_cast<std::size_t>(tokens) * kHeadDim);
  linear(x, weights.wkv, {raw, nullptr, kHeadDim}, engine.memory(), engine.stream());
  using enum TensorId;
  publish_kv_rows(engine, call.layer,
                  {window_normed, window_kv, window_codes, window_rope, window_scales, window_page_bytes},
                  {raw, nullptr, weights.kv_norm, layout.rows.position.device, layout.rows.window_slot.device}, tokens,
                  engine.cache(call.layer, Cache::window));
  engine.note_writes(call.layer, call.stage, Cache::window, {window_page_bytes});
}

}  // namespace dsv4::gpu
