#include <cstring>

#include "cli/kernels/stage_models.hpp"
#include "reference/kernels/deepgemm_mqa_logits.hpp"

namespace dsv4::cli::kernel_stages {

/// Scores beyond `visible` stay as the stage made them. The paged kernel of decode computes the same bits.
void deepgemm_scores(const KernelCall& call) {
  CacheRows rows(call, Cache::index_entries);
  const Tensor& codes = call.input(TensorId::query_codes);
  const auto visible = call.input(TensorId::visible).as<std::int32_t>();
  const float* const weights = call.input(TensorId::query_weights).as<float>().data();
  Tensor scores = call.input(TensorId::scores);
  const std::int64_t width = scores.dim(1);
  const int heads = call.geometry().index_heads;
  for (const RequestStep& request : call.plan().requests) {
    const std::int32_t count = request.end / ratio(LayerKind::csa);
    std::vector<std::uint8_t> keys(static_cast<std::size_t>(count) * kIndexDim);
    std::vector<float> scales(static_cast<std::size_t>(count));
    for (std::int32_t j = 0; j < count; ++j) {
      const std::int64_t slot = rows.slot(request, j);
      std::memcpy(keys.data() + std::int64_t{j} * kIndexDim, rows.values(slot), kIndexDim);
      std::memcpy(&scales[static_cast<std::size_t>(j)], rows.scales(slot), sizeof(float));
    }
    const std::vector<std::int32_t> starts(static_cast<std::size_t>(request.row_count), 0);
    kernels::DeepgemmMqaLogits in;
    in.tokens = request.row_count;
    in.keys = count;
    in.heads = heads;
    in.dim = kIndexDim;
    in.q = codes.as<std::uint8_t>().data() + std::int64_t{request.first_row} * heads * kIndexDim;
    in.kv = keys.data();
    in.kv_scales = scales.data();
    in.weights = weights + std::int64_t{request.first_row} * heads;
    in.key_start = starts.data();
    in.key_end = visible.data() + request.first_row;
    kernels::deepgemm_mqa_logits(in, scores.as<float>().data() + request.first_row * width, width);
  }
  call.publish(TensorId::scores, std::move(scores));
}

}  // namespace dsv4::cli::kernel_stages
