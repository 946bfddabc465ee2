/// Compares two sources step by step. Equal tensors cost one memcmp; nothing is copied.
///
/// Both observations of a pair must come from the same plan (same rows in the same order); a batch that
/// differs is reported as a divergence of `batch/...`. Sources whose batching differs go through
/// TokenAligner.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "compare/comparison.hpp"
#include "compare/rule.hpp"
#include "model/observation.hpp"

namespace dsv4::compare {

/// Says whether a side (`reference`: that one) had to hold a tensor of a step, or, without an id, its batch
/// tables and state digests. What is due and missing on one side alone is a finding; the rest counts as not
/// produced.
using Due = std::function<bool(bool reference, std::int64_t step, std::optional<TensorId> id)>;

/// The finding about something that a side had to hold.
Finding missing(bool reference, std::int64_t step, int layer, const std::string& what);

struct CompareOptions {
  Due due;  ///< default: nothing is due
  /// Tensors for which this says no are skipped with the reason given; default: everything.
  std::function<bool(int layer, TensorId id)> wanted;
  std::string unwanted_reason = "not selected";
  /// Both sides were fed the same stage inputs, so every difference is introduced where it is seen.
  bool fed = false;
  /// Rows of the first axis for which this says no are don't-care ("no counterpart"); default: all are
  /// judged.
  std::function<bool(int layer, TensorId id, std::int64_t row)> judged_row;
  std::string unjudged_reason = "rows without a counterpart";
  /// What the subject does not hold it took from the reference: inputs of a stage that it computed alone.
  bool taken_from_reference = false;
  /// Completes a step's comparisons before they are counted; default: nothing.
  std::function<void(StepComparison&)> complete;
};

class Comparator {
 public:
  /// The infos must outlive the comparator. Throws UsageError where the two runs cannot be compared at all
  /// (other layer kinds or geometry).
  Comparator(const SourceInfo& reference, const SourceInfo& subject, Rules rules,
             CompareOptions options = {});
  ~Comparator();

  StepComparison compare(const StepObservation& reference, const StepObservation& subject);

  const Totals& totals() const { return totals_; }
  const Rules& rules() const { return rules_; }
  /// Adds findings of other checks (WriteSetChecker) to the totals.
  void add_findings(StepComparison& step, std::vector<Finding> findings);

 private:
  struct History;
  const SourceInfo& reference_;
  const SourceInfo& subject_;
  Rules rules_;
  CompareOptions options_;
  Totals totals_;
  std::unique_ptr<History> history_;
};

}  // namespace dsv4::compare
