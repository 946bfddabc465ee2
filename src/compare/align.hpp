/// Comparison of two sources whose batching differs, keyed (layer, request, position) and, for entries,
/// (layer, request, index). The last occurrence of a key holds, so recomputed and rolled-back tokens count
/// once.
///
/// Not comparable by token and listed as skipped: physical slots and pages, which depend on the order of
/// allocation, and batch row numbers. State digests are compared once, after the last step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare/comparator.hpp"

namespace dsv4::compare {

/// Unique keys of a run's requests by index: the name, or "name#2" when a name was admitted again.
std::vector<std::string> request_keys(const std::vector<std::string>& requests);

enum class Side : std::uint8_t { reference, subject };

class TokenAligner {
 public:
  /// `due` is asked with step -1: whether a side had to hold a tensor in the whole of its run.
  TokenAligner(const SourceInfo& reference, const SourceInfo& subject, Rules rules, Due due = {});
  ~TokenAligner();

  /// Adds a step. `keys` names the requests by index; several runs may feed one side. Observations are kept
  /// in memory until compare().
  void add(Side side, StepObservation observation, const std::vector<std::string>& keys);

  /// Digests of a side's state at its end are those of its last step; false leaves them out (several runs).
  void compare_final_state(bool yes) { final_state_ = yes; }

  /// One StepComparison, step -1, whose rows are tokens (entries) ordered by request and position; its skips
  /// say what had no counterpart.
  StepComparison compare();
  const Totals& totals() const;

 private:
  struct Index;
  const SourceInfo& reference_;
  const SourceInfo& subject_;
  Rules rules_;
  Due due_;
  bool final_state_ = true;
  std::unique_ptr<Index> index_;
};

/// Reads both sources to their ends.
StepComparison compare_by_token(ObservationSource& reference, ObservationSource& subject, const Rules& rules,
                                Totals* totals, const Due& due = {});

}  // namespace dsv4::compare
