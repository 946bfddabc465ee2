/// indexer.query: indexer.wq_b, RoPE, rotation, quantisation; head weights with all scales folded
/// (docs/numerics.md 13, 18).
#include <cmath>

#include "arith/bf16.hpp"
#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/index_row.cuh"
#include "gpu/query_latent.cuh"

namespace dsv4::gpu {
namespace {

/// rn(w * c), times the query's scale when it is FP8, rounded to bf16 when the profile says so.
__global__ void weights_kernel(const std::uint16_t* w, const float* query_scale, float c, bool round_bf16, float* out,
                               std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = arith::bf16_to_f32(w[i]) * c;
  if (round_bf16) value = arith::bf16_to_f32(arith::f32_to_bf16(value));
  if (query_scale != nullptr) value = value * query_scale[i];
  out[i] = value;
}

}  // namespace

void indexer_query(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int heads = engine.geometry().index_heads;
  const std::int64_t width = std::int64_t{heads} * kIndexDim;
  const DeviceWeights& weights = engine.weights(call.layer);
  const DeviceTensor entry =
      engine.publish(call.layer, TensorId::query_entry, DType::bfloat16, {tokens, heads, kIndexDim});
  auto* q = entry.as<std::uint16_t>();
  linear(quantised_latent(engine, call.layer), weights.indexer_wq_b, {q, nullptr, width}, engine.memory(),
         engine.stream());
  const RopeRows table = engine.token_rope(call.layer);
  rope(q, q, tokens, heads, kIndexDim, table.cosines, table.sines, false, engine.stream());
  if (engine.profile().get<IndexRotation>() == IndexRotation::both) hadamard(q, q, tokens * heads, engine.stream());
  publish_index_rows(engine, call.layer, {TensorId::query_codes, TensorId::query_scales}, q, {tokens, heads});

  auto* projected = engine.memory().get<std::uint16_t>("scratch/index_weights", static_cast<std::size_t>(tokens) * heads);
  const WideOperand x = widen_rows({nullptr, nullptr, engine.input(call.layer, TensorId::hidden).as<std::uint16_t>()},
                                   tokens, engine.geometry().dim, engine.memory(), engine.stream());
  linear(x, weights.weights_proj, {projected, nullptr, heads}, engine.memory(), engine.stream());
  const DeviceTensor out = engine.publish(call.layer, TensorId::query_weights, DType::float32, {tokens, heads});
  const bool fp4 = engine.profile().get<IndexCache>() == IndexCache::fp4;
  const auto c = static_cast<float>(1.0 / std::sqrt(static_cast<double>(kIndexDim) * heads));
  weights_kernel<<<static_cast<unsigned>((tokens * heads + 255) / 256), 256, 0, engine.stream()>>>(
      projected, fp4 ? nullptr : engine.input(call.layer, TensorId::query_scales).as<float>(), c,
      engine.profile().get<IndexRound>() == IndexRound::bf16, out.as<float>(), tokens * heads);
  DSV4_LAUNCHED("weights_kernel");
}

}  // namespace dsv4::gpu
