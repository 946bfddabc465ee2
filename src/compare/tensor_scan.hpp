/// One pass over a pair of tensors: which elements differ, how far, along which axes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compare/comparison.hpp"
#include "compare/judge.hpp"
#include "model/tensor.hpp"

namespace dsv4::compare {

/// Elements that no rule judges. They are counted, never dropped silently.
struct DontCare {
  std::vector<std::int64_t> judged;  ///< by row of the first axis: judged elements from its start; empty: all
  std::function<bool(std::int64_t element_of_row)> also;  ///< left out in every row; empty: nothing
  std::int64_t also_in_row = 0;                           ///< how many `also` holds for in a whole row
  std::string reason;

  bool nothing() const { return judged.empty() && !also; }
  std::int64_t judged_in(std::int64_t row, std::int64_t row_elements) const;
  bool judges(std::int64_t row, std::int64_t element_of_row) const;
  /// Don't-care elements of a tensor of this shape.
  std::int64_t count(const Tensor& tensor) const;
};

/// How a pass decides.
struct ScanRules {
  bool only_equal = false;  ///< every mismatch is outside
  Inputs inputs = Inputs::unknown;
  std::vector<std::string> axes;  ///< names, for shared indices
};

/// Fills the figures of `result`: verdict, counts, worst distances, first mismatch, both values, shared axes.
/// `judge` is made only where bits differ. Returns the rows of the first axis with a judged mismatch.
std::vector<std::int64_t> scan_pair(const Tensor& reference, const Tensor& subject, const DontCare& dont_care,
                                    const ScanRules& rules,
                                    const std::function<std::unique_ptr<ElementJudge>()>& judge,
                                    Comparison& result);

/// Counts inf and NaN among the judged elements; `first` is a coordinate.
NonFinite scan_nonfinite(const Tensor& tensor, const DontCare& dont_care);

}  // namespace dsv4::compare
