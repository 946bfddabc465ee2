/// Scores of index queries against compressed index keys. Implements section 13 (and 18 for index_round
/// bf16).
#pragma once

#include <cstdint>
#include <span>

#include "model/profile.hpp"

namespace dsv4::reference {

/// f32(1 / sqrt(128 * heads)), made in float64.
float index_weight_constant(int heads);

/// Folded head weights of one token. `projected` is the bf16 product of weights_proj [heads]; `query_scales`
/// the ue8m0 byte of each head's query for FP8, null for FP4. FP8: (w * c) * 2^e_q; FP4: w * c. With
/// index_round bf16 w * c is rounded to bf16.
void index_head_weights(const std::uint16_t* projected, int heads, const std::uint8_t* query_scales,
                        IndexRound round, float* weights);

/// Index keys in the order in which the scores read them; simd::ScoreTask says which.
std::int64_t packed_index_keys(std::int64_t count);  ///< floats for `count` keys
/// `rows` [count, 128] to packed_index_keys(count) floats at `packed`.
void pack_index_keys(const float* rows, std::int64_t count, float* packed);

/// Scores of one token against `count` keys.
struct IndexScoreCall {
  const std::uint8_t* query = nullptr;         ///< codes [heads, 128]
  const std::uint8_t* query_scales = nullptr;  ///< ue8m0 [heads, 4] for FP4; null for FP8, whose are folded
  const float* weights = nullptr;              ///< [heads], folded
  const float* keys = nullptr;                 ///< packed: values of the codes (FP8) or dequantised (FP4)
  const float* key_scales = nullptr;           ///< [count] f32 for FP8, null for FP4
  std::int64_t count = 0;
  float* scores = nullptr;  ///< [count]
};

/// t_h = dot32 over 128; S = dot32 over heads of (relu(t_h), w_h); then S * key scale (FP8) or S.
/// index_round bf16: t_h to bf16, relu, product to bf16, sum32 over heads, one bf16 (then the scale).
void index_scores(const IndexScoreCall& call, int heads, IndexRound round);

/// Many tokens, spread over OpenMP threads.
void index_scores(std::span<const IndexScoreCall> calls, int heads, IndexRound round);

}  // namespace dsv4::reference
