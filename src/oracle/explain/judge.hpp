/// Holds runs of the reference against the recorded foreign run: the first difference, candidates, isolation.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "oracle/explain/explain.hpp"

namespace dsv4::oracle::explain {

/// One thing that was compared: a tensor, a digest, a list of writes, the findings or the end of a step.
struct Item {
  using Key = std::tuple<int, std::string, std::string>;  ///< layer, stage, tensor
  Key key;
  bool equal = true;
  std::int64_t mismatches = 0;

  const std::string& stage() const { return std::get<1>(key); }
  std::string place() const;  ///< "q.up/q"
};

/// A step of the foreign run beside the reference's.
struct RecordedStep {
  std::int64_t index = 0;
  SeenStep reference;
  SeenStep foreign;
  std::vector<Item> items;  ///< in the order of execution
};

class Judge {
 public:
  /// Both must outlive the judge. Runs the reference beside the foreign run and records both.
  Judge(const Bench& bench, Foreign& foreign);

  const std::vector<RecordedStep>& steps() const { return steps_; }
  const std::optional<FirstDifference>& first() const { return first_; }
  const RecordedStep& first_step() const { return steps_.at(first_at_); }
  /// True for items of the stage that differed first, in its step.
  bool own(const Item& item) const;
  std::int64_t compared() const { return compared_; }
  std::int64_t dont_care() const { return dont_care_; }
  bool whole_run() const { return whole_run_; }
  const RunConfig& config() const { return config_; }

  /// Throws UsageError where the candidate does not apply to this run.
  Evidence evaluate(const Candidate& candidate) const;
  /// The reference with the foreign tensors of the first stage in place, in every step; empty where it has
  /// none.
  std::optional<Isolation> isolate() const;

 private:
  struct Pass;
  void record();
  Gathered gathered() const;
  std::vector<Item> items_of(const compare::StepComparison& comparison, const SeenStep& ours,
                             const SeenStep& foreign) const;
  /// A step that cannot give the stage's bits is broken off behind it, if `break_off`; empty where that was
  /// too early.
  std::optional<Evidence> evaluate(const Candidate& candidate, bool break_off) const;
  /// Whether the tensors of the stage that differed first are the foreign ones, byte by byte.
  bool gives_stage(const Engine& engine, Stage stage) const;
  /// The step as far as it came.
  SeenStep until_stage(const Engine& engine) const;
  std::int64_t own_mismatches(const std::vector<Item>& items) const;
  /// Sum of |difference| of the first tensor; empty where it has no numbers.
  std::optional<double> error_of(const SeenStep& ours) const;

  const Bench& bench_;
  Foreign& foreign_;
  RunConfig config_;
  SourceInfo info_;  ///< of the reference
  std::vector<RecordedStep> steps_;
  std::optional<FirstDifference> first_;
  std::size_t first_at_ = 0;
  std::int64_t compared_ = 0;
  std::int64_t dont_care_ = 0;
  bool whole_run_ = true;
};

}  // namespace dsv4::oracle::explain
