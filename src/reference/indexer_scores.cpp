#include "reference/indexer_scores.hpp"

#include <cmath>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/ue8m0.hpp"
#include "model/geometry.hpp"
#include "reference/sums.hpp"

namespace dsv4::reference {
namespace {

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
float relu(float x) {
  return x > 0.0F ? x : 0.0F;
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

void index_scores(const IndexScoreCall& call, int heads, IndexRound round) {
  const auto head_count = static_cast<std::size_t>(heads);
  std::vector<float> terms(head_count);
  for (std::int64_t j = 0; j < call.count; ++j) {
    const float* key = call.keys + j * kIndexDim;
    for (std::size_t h = 0; h < head_count; ++h) {
      const float t = dot32(call.query + h * kIndexDim, key, kIndexDim);
      terms[h] =
          round == IndexRound::bf16 ? to_bf16_value(relu(to_bf16_value(t)) * call.weights[h]) : relu(t);
    }
    const float sum = round == IndexRound::bf16 ? to_bf16_value(sum32(terms.data(), heads))
                                                : dot32(terms.data(), call.weights, heads);
    call.scores[j] = call.key_scales != nullptr ? sum * call.key_scales[j] : sum;
  }
}

void index_scores(std::span<const IndexScoreCall> calls, int heads, IndexRound round) {
  const auto count = static_cast<std::int64_t>(calls.size());
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < count; ++i) index_scores(calls[static_cast<std::size_t>(i)], heads, round);
}

}  // namespace dsv4::reference
