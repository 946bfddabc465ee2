/// Comparison of selections: rows of indices, -1 where nothing is selected (docs/numerics.md 13).
///
/// Order does not matter to the verdict, the set does. A row whose set differs is
///   tie_swap     the exchanged entries score exactly the cut value on both sides
///   within_rule  the exchanged entries lie within the wide engine's bounds of the cut, or each side chose
///   the
///                best by its own scores and these scores pass their rule
///   diverged     otherwise: wrong count, repeated or invisible entry, better entry left out, scores unknown
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compare/comparison.hpp"
#include "model/tensor.hpp"

namespace dsv4::compare {

/// Scores that a selection was made from; null where a side did not publish them.
struct SelectionScores {
  const Tensor* reference = nullptr;  ///< f32 [token, entry]
  const Tensor* subject = nullptr;
  const Tensor* visible = nullptr;    ///< int32 [token]
  bool pass_rule = false;             ///< the verdict of the scores themselves
  const Tensor* unrounded = nullptr;  ///< float64 [token, entry], wide engine
  const Tensor* bounds = nullptr;
};

/// Verdicts of rows that differ.
using RowVerdicts = std::map<std::int64_t, Verdict>;

/// Fills `result` as scan_pair does. `judged` gives for each row whether it is judged (padding is not).
RowVerdicts compare_selection(const Tensor& reference, const Tensor& subject, const std::vector<bool>& judged,
                              const SelectionScores& scores, Comparison& result);

/// Lists made from a selection: rows whose sets differ take the selection's verdict of that row, if the lists
/// exchange as many items as the selection does; rows without one diverge.
RowVerdicts compare_lists(const Tensor& reference, const Tensor& subject, const std::vector<bool>& judged,
                          const RowVerdicts& selection, Comparison& result);

}  // namespace dsv4::compare
