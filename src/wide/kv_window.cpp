/// kv.window: wkv, bf16, RMS norm with kv_norm, bf16, RoPE, bf16, FP8, window page (docs/numerics.md 11).
#include "wide/key_rows.hpp"
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void kv_window(Layer& layer, const StepPlan& plan) {
  const bool rounded = layer.rounding<KvRow>() == KvRow::bf16;
  Balls keys = layer.linear_of_input(layer.weights->wkv);
  keys.round_to_bf16(layer.exact());
  keys = rms_norm(keys, bf16_values(layer.weights->kv_norm), static_cast<double>(layer.geometry().eps),
                  HeadNorm::f32, layer.rounding<NormWeight>());
  keys = layer.publish_row(TensorId::window_normed, {kHeadDim}, std::move(keys), rounded);
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    rotate(keys, static_cast<Eigen::Index>(i), kNopeDim, layer.rope.at(layer.position(i)), false);
  }
  auto rows = publish_keys(layer,
                           {TensorId::window_kv, TensorId::window_codes, TensorId::window_rope,
                            TensorId::window_scales, TensorId::window_page_bytes},
                           std::move(keys), rounded);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RequestStep& step = layer.step_of(plan, i);
    if (layer.position(i) < step.from.window) continue;
    layer.write(Stage::kv_window, Cache::window,
                layer.caches.slot(Cache::window, {*step.tables, step.state_base}, layer.position(i)),
                step.request, layer.position(i), std::move(rows[i]));
  }
}

}  // namespace dsv4::wide
