#include <algorithm>
#include <array>
#include <limits>

#include "cli/kernels/stage_models.hpp"
#include "model/error.hpp"
#include "reference/kernels/sglang_softmax.hpp"
#include "reference/kernels/vllm_compress_pool.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

/// One row of a window: d values each.
struct WindowRow {
  std::vector<float> kv, score;
};

float sglang_column(std::span<const float> scores, std::span<const float> kv) {
  using namespace kernels;
  if (scores.size() == kSglangRowsPerWarp) {
    const SglangPartial partial = sglang_softmax8(scores.data(), kv.data());
    return stored(ftz_mul(partial.product, arith::hopper::rcp_ftz(partial.sum)));
  }
  std::array<SglangPartial, kSglangWarps> parts;
  for (std::size_t w = 0; w < parts.size(); ++w) {
    parts[w] = sglang_softmax8(scores.data() + kSglangRowsPerWarp * w, kv.data() + kSglangRowsPerWarp * w);
  }
  return stored(sglang_merge(parts).mean);
}

/// `masked_score` is what a kernel takes for rows before the first position.
void pool(const KernelCall& call, kernels::PoolColumn column, float masked_score) {
  const bool indexer = call.stage.stage == Stage::indexer_pool;
  const int d = indexer ? kIndexDim : kHeadDim;
  const int r = ratio(call.kind());
  const bool overlap = call.kind() == LayerKind::csa;
  const std::int64_t channels = compressor_channels(call.kind(), d);
  const TensorId pooled_id = indexer ? TensorId::indexer_pooled : TensorId::compress_pooled;
  const auto kv = call.input(indexer ? TensorId::indexer_kv : TensorId::compress_kv).as<float>();
  const auto score = call.input(indexer ? TensorId::indexer_score_raw : TensorId::compress_score).as<float>();
  const std::vector<float>& ape =
      (indexer ? call.weights().indexer_compressor : call.weights().compressor).ape;
  CacheRows state(call, indexer ? Cache::index_state : Cache::state);
  Tensor pooled(DType::float32, call.input(pooled_id).shape());
  float* out = pooled.as<float>().data();

  for (const RequestStep& request : call.plan().requests) {
    const std::int32_t keep = overlap ? request.from.entries_c4 : request.from.entries_c128;
    for (std::int32_t j = std::max(keep, request.begin / r); j < request.end / r; ++j) {
      std::vector<WindowRow> rows;
      for (std::int32_t p = overlap ? (j - 1) * r : j * r; p < (j + 1) * r; ++p) {
        const std::int64_t first = overlap && p >= j * r ? d : 0;
        if (p < 0) {
          rows.push_back({std::vector<float>(d, 0.0F), std::vector<float>(d, masked_score)});
        } else if (p < request.begin) {
          const std::int64_t slot = state.slot(request, p);
          rows.push_back({state.floats(slot, first, d), state.floats(slot, channels + first, d)});
        } else {
          const std::int64_t at = (request.first_row + p - request.begin) * channels + first;
          WindowRow row{{kv.begin() + at, kv.begin() + at + d}, {score.begin() + at, score.begin() + at + d}};
          for (int c = 0; c < d; ++c) row.score[c] = row.score[c] + ape[p % r * channels + first + c];
          rows.push_back(std::move(row));
        }
      }
      require(out < pooled.as<float>().data() + pooled.elements(),
              "kernel models pooled other entries than the stage");
      std::vector<float> scores(rows.size());
      std::vector<float> values(rows.size());
      for (int c = 0; c < d; ++c) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          scores[i] = rows[i].score[c];
          values[i] = rows[i].kv[c];
        }
        *out++ = column(scores, values);
      }
    }
  }
  require(out == pooled.as<float>().data() + pooled.elements(),
          "kernel models pooled other entries than the stage");
  call.publish(pooled_id, std::move(pooled));
}

}  // namespace

void vllm_pool(const KernelCall& call) {
  pool(call, kernels::vllm_pool_one_stage, -std::numeric_limits<float>::infinity());
}

void sglang_pool(const KernelCall& call) {
  pool(call, sglang_column, -std::numeric_limits<float>::max());
}

}  // namespace dsv4::cli::kernel_stages
