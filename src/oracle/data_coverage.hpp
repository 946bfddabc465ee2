/// What a run's numbers exercise: the facts of `expect: covers:` that no plan can tell, gathered from
/// observations.
#pragma once

#include <set>
#include <string>

#include "model/observation.hpp"

namespace dsv4::oracle {

/// Facts, each with a place in scenario::coverage_catalogue():
///   select.tie_at_cut      the last selected score equals the best one left out
///   select.nan_score       a visible score is NaN
///   quantize.saturated     a code of the largest magnitude
///   quantize.floor         a block whose scale is that of the floor
///   quantize.exponents     three scale exponents or more in one tensor
///   attention.no_key       a token that attends to nothing
///   value.nonfinite        an inf or NaN in any float tensor; scores beyond `visible` and padding rows left
///   out
class DataCoverage {
 public:
  void add(const StepObservation& step);
  const std::set<std::string>& facts() const { return facts_; }

 private:
  std::set<std::string> facts_;
};

/// Float tensors of the step with an inf or NaN, as "layer/stage/tensor"; padding rows, scores at or beyond
/// `visible` and lse of tokens without a key are left out.
std::vector<std::string> nonfinite_tensors(const StepObservation& step);

}  // namespace dsv4::oracle
