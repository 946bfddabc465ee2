/// `expect: same_as: sequential`: a run against runs in which every request is alone, one token a step.
///
/// Outputs are compared by token, live state once for each request: as it was after the last step in which
/// the request was live with its whole window held. Physical places differ and are not compared, nor are
/// state rows of tokens that a rewind or a rejection replaced later.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compare/align.hpp"
#include "oracle/runner.hpp"

namespace dsv4::oracle {

class SequentialCheck {
 public:
  /// `run` and `info` (of the run under test) must outlive the check.
  SequentialCheck(const RunPlan& run, const SourceInfo& info);
  ~SequentialCheck();

  /// After every step of the run under test.
  void add(const Engine& engine, const StepPlan& plan, const StepObservation& observation);

  /// Runs the sequential plans and compares; state differences are among the comparison's findings.
  compare::StepComparison finish(const std::vector<RunPlan>& sequential, const std::string& engine_name,
                                 const EngineFactory& factory, std::shared_ptr<const WeightSource> weights,
                                 std::shared_ptr<const HiddenSource> hidden);
  /// Counts of the comparison, findings included.
  compare::Totals totals() const;

 private:
  using StateKey = std::pair<int, Cache>;
  using RequestState = std::map<StateKey, std::string>;
  struct Last {
    std::int64_t step = -1;
    std::int32_t length = 0;
  };

  /// Takes state rows of replaced tokens out of an observation.
  void drop_replaced(const StepPlan& plan, StepObservation& observation) const;

  const SourceInfo& info_;
  std::vector<std::string> keys_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> content_;  ///< last, by request and position
  std::map<std::int32_t, Last> last_;                                       ///< by request
  std::map<std::int32_t, RequestState> state_;  ///< by request, after its last step
  std::unique_ptr<SourceInfo> reference_info_;
  std::unique_ptr<compare::TokenAligner> aligner_;
  std::int64_t state_compared_ = 0;
  std::int64_t state_failed_ = 0;
};

}  // namespace dsv4::oracle
