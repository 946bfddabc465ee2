/// Faults of indexer.score: what is summed, with which weights, and how many entries a token sees.
#pragma once

#include "oracle/faults/compressor_form.hpp"

namespace dsv4::oracle::faults {

/// What is wrong with index scores (docs/numerics.md 13).
struct ScoreChange {
  enum class Visible : std::uint8_t { own, last_of_verify, one_more };
  Visible visible = Visible::own;
  bool relu_after_sum = false;    ///< of the weighted sum instead of every head
  bool unscaled_weights = false;  ///< head weights without 1 / sqrt(128 * heads)
};
/// Scores the tokens of a step again, with a change, over what the stage published.
void rescore(FaultyEngine& subject, const StageCall& call, const ScoreChange& change);

void score_relu_after_sum(FaultyEngine& subject, const Parameters& parameters);
void score_without_weight_factor(FaultyEngine& subject, const Parameters& parameters);
void visible_of_last_verify_row(FaultyEngine& subject, const Parameters& parameters);
void visible_one_too_many(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
