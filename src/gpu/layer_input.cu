/// layer.input: the layer's hidden states and, for FP8 linears, their codes (docs/numerics.md 11, 16).
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
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(n));  // kept for restore steps
  DSV4_CUDA(cudaMemcpyAsync(rows.data(), hidden.data, rows.size() * sizeof(std::uint16_t), cudaMemcpyDeviceToHost,
                            engine.stream()));
  DSV4_CUDA(cudaStreamSynchronize(engine.stream()));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Row& row = call.plan.rows[static_cast<std::size_t>(t)];
    if (row.request < 0) continue;
    engine.keep_input(call.layer, row.content, {rows.begin() + t * dim, rows.begin() + (t + 1) * dim});
  }
}

/// Rows from the run's input, or, when a chained layer is restored, those kept from their first computation.
void fetch(CudaEngine& engine, const StageCall& call, bool kept, const DeviceTensor& hidden) {
  const auto dim = static_cast<std::size_t>(engine.geometry().dim);
  std::vector<std::uint16_t> rows(call.plan.rows.size() * dim);
  for (std::size_t t = 0; t < call.plan.rows.size(); ++t) {
    const Row& row = call.plan.rows[t];
    if (row.request < 0) continue;
    const std::span<std::uint16_t> out(rows.data() + t * dim, dim);
    if (!kept) {
      engine.hidden().hidden(call.layer, row, out);
      continue;
    }
    const std::vector<std::uint16_t>* stored = engine.kept_input(call.layer, row.content);
    if (stored == nullptr) {
      throw InternalError("cuda engine: no kept input of layer " + std::to_string(call.layer) + " for position " +
                          std::to_string(row.position) + " of request " + std::to_string(row.request));
    }
    std::copy(stored->begin(), stored->end(), out.begin());
  }
  DSV4_CUDA(cudaMemcpyAsync(hidden.data, rows.data(), rows.size() * sizeof(std::uint16_t), cudaMemcpyHostToDevice,
                            engine.stream()));
  DSV4_CUDA(cudaStreamSynchronize(engine.stream()));
}

}  // namespace

void layer_input(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const std::int64_t tokens = engine.layout().tokens;
  const int dim = engine.geometry().dim;
  const DeviceTensor hidden = engine.publish(call.layer, TensorId::hidden, DType::bfloat16, {tokens, dim});
  const bool restore = call.plan.kind == StepKind::restore;
  if (engine.config().chain && call.layer > 0 && !restore) {
    chain(engine, call, hidden);
  } else {
    fetch(engine, call, engine.config().chain && call.layer > 0, hidden);
  }
  const DeviceTensor codes = engine.publish(call.layer, TensorId::hidden_codes, DType::float8_e4m3fn, {tokens, dim});
  const DeviceTensor scales =
      engine.publish(call.layer, TensorId::hidden_scales, DType::float8_e8m0fnu, {tokens, dim / 128});
  quantise_e4m3(hidden.as<std::uint16_t>(), dim, tokens, dim, 128, codes.as<std::uint8_t>(), dim,
                scales.as<std::uint8_t>(), dim / 128, engine.stream());
}

}  // namespace dsv4::gpu
