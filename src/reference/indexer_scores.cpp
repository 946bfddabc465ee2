#include "reference/indexer_scores.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/ue8m0.hpp"
#include "model/geometry.hpp"
#include "model/zeroed_memory.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

}  // namespace

float index_weight_constant(int heads) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(kIndexDim) * heads));
}

void index_head_weights(const std::uint16_t* projected, int heads, const std::uint8_t* query_scales,
                        IndexRound round, float* weights) {
  const float c = index_weight_constant(heads);
  for (int h = 0; h < heads; ++h) {
    float w = arith::bf16_to_f32(projected[h]) * c;
    if (round == IndexRound::bf16) w = to_bf16_value(w);
    weights[h] = query_scales != nullptr ? w * arith::ue8m0_to_f32(query_scales[h]) : w;
  }
}

std::int64_t packed_index_keys(std::int64_t count) {
  return (count + simd::kKeyPanel - 1) / simd::kKeyPanel * simd::kKeyPanelFloats;
}

void pack_index_keys(const float* rows, std::int64_t count, float* packed) {
  simd::kernels().pack_keys(rows, count, packed);
}

namespace {

/// Memory of a thread: the query's values, then what the kernel needs.
std::int64_t query_floats(int heads) {
  return std::int64_t{heads} * kIndexDim;
}
ZeroedArray<float> scratch_for(int heads) {
  return ZeroedArray<float>(static_cast<std::size_t>(query_floats(heads) + simd::score_scratch(heads)));
}

void run(const IndexScoreCall& call, int heads, IndexRound round, float* scratch) {
  float* const query = scratch;
  const std::int64_t values = query_floats(heads);
  if (call.query_scales != nullptr) {
    dequantize_e2m1(call.query, call.query_scales, values, query);
  } else {
    decode_e4m3(call.query, values, query);
  }
  simd::kernels().scores({query, call.weights, call.keys, call.key_scales, call.count, heads,
                          round == IndexRound::bf16, call.scores, scratch + values});
}

}  // namespace

void index_scores(const IndexScoreCall& call, int heads, IndexRound round) {
  ZeroedArray<float> scratch = scratch_for(heads);
  run(call, heads, round, scratch.data());
}

void index_scores(std::span<const IndexScoreCall> calls, int heads, IndexRound round) {
  // Few tokens with many keys (decode) are cut into runs of keys, so that every thread has work.
  constexpr std::int64_t kRun = 1024;
  static_assert(kRun % simd::kKeyPanel == 0);
  // Fewer multiply-adds run on the calling thread: waking the others would take longer.
  constexpr std::int64_t kParallelWork = 1 << 21;
  std::vector<IndexScoreCall> runs;
  for (const IndexScoreCall& call : calls) {
    for (std::int64_t first = 0; first < call.count; first += kRun) {
      IndexScoreCall run = call;
      run.keys += first * kIndexDim;
      run.key_scales = call.key_scales != nullptr ? call.key_scales + first : nullptr;
      run.scores += first;
      run.count = std::min(kRun, call.count - first);
      runs.push_back(run);
    }
  }
  const auto count = static_cast<std::int64_t>(runs.size());
  std::int64_t keys = 0;
  for (const IndexScoreCall& run : runs) keys += run.count;
  const bool parallel = keys * heads * kIndexDim > kParallelWork;
  std::vector<ZeroedArray<float>> scratch(static_cast<std::size_t>(omp_get_max_threads()),
                                          scratch_for(heads));
#pragma omp parallel for schedule(dynamic) if (parallel)
  for (std::int64_t i = 0; i < count; ++i) {
    run(runs[static_cast<std::size_t>(i)], heads, round,
        scratch[static_cast<std::size_t>(omp_get_thread_num())].data());
  }
}

}  // namespace dsv4::reference
