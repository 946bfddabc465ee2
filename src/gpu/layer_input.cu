/// layer.input: the layer's hidden states and, for FP8 linears, their codes (docs/numerics.md 11, 16).
#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

/// Chained layers: the RMS norm, weight 1, of the bf16 sum of the previous layer's input and output.
void chain(CudaEngine& engine, const StageCall& call, const DeviceTensor& hidden) {
  const std::int64_t tokens = engine.layout().tokens;
  const int dim = engine.geometry().dim;
  const std::int64_t n = tokens * dim;
  auto* sum = engine.memory().get<std::uint16_t>("scratch/chain_sum", static_cast<std::size_t>(n));
  add_bf16(engine.input(call.layer - 1, TensorId::hidden).as<std::uint16_t>(),
           engine.input(call.layer - 1, TensorId::hidden_out).as<std::uint16_t>(), sum, n, engine.stream());
  rms_norm(sum, nullptr, hidden.as<std::uint16_t>(), tokens, dim, engine.geometry().eps, engine.stream());
}

}  // namespace

/// Rows from the run's input, or, when a chained layer is restored, those kept from their first computation.
std::byte* CudaEngine::fetch_hidden(const StepPlan& plan, int layer) {
  const bool kept = config_.chain && layer > 0;
  const auto dim = static_cast<std::size_t>(geometry().dim);
  std::byte* const bytes = sent_.take(plan.rows.size() * dim * sizeof(std::uint16_t));
  auto* const rows = reinterpret_cast<std::uint16_t*>(bytes);
  for (std::size_t t = 0; t < plan.rows.size(); ++t) {
    const Row& row = plan.rows[t];
    const std::span<std::uint16_t> out(rows + t * dim, dim);
    if (row.request < 0) {
      std::ranges::fill(out, std::uint16_t{0});
    } else if (!kept) {
      hidden_->hidden(layer, row, out);
    } else {
      const std::vector<std::uint16_t>* stored = kept_input(layer, row.content);
      if (stored == nullptr) {
        throw InternalError("cuda engine: no kept input of layer " + std::to_string(layer) + " for position " +
                            std::to_string(row.position) + " of request " + std::to_string(row.request));
      }
      std::ranges::copy(*stored, out.begin());
    }
  }
  return bytes;
}

void layer_input(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int dim = engine.geometry().dim;
  const DeviceTensor hidden = engine.publish(call.layer, TensorId::hidden, DType::bfloat16, {tokens, dim});
  const bool restore = call.plan.kind == StepKind::restore;
  if (engine.config().chain && call.layer > 0 && !restore) {
    chain(engine, call, hidden);
  } else if (!engine.hidden_given()) {
    DSV4_CUDA(cudaMemcpyAsync(hidden.data, engine.fetch_hidden(call.plan, call.layer), hidden.size_in_bytes(),
                              cudaMemcpyHostToDevice, engine.stream()));
  }
  const DeviceTensor codes = engine.publish(call.layer, TensorId::hidden_codes, DType::float8_e4m3fn, {tokens, dim});
  const DeviceTensor scales =
      engine.publish(call.layer, TensorId::hidden_scales, DType::float8_e8m0fnu, {tokens, dim / 128});
  quantise_e4m3(hidden.as<std::uint16_t>(), dim, tokens, dim, 128, codes.as<std::uint8_t>(), dim,
                scales.as<std::uint8_t>(), dim / 128, engine.stream());
}

}  // namespace dsv4::gpu
