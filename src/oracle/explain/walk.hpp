/// Runs as `explain` sees them, step by step: what a step published, what its write-set check found, and
/// whether the engine broke off. A foreign run is an engine under test or a dump.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/comparison.hpp"
#include "io/dump_reader.hpp"
#include "oracle/runner.hpp"

namespace dsv4::oracle::explain {

struct SeenStep {
  StepObservation observation;
  std::vector<compare::Finding> findings;
  std::string stopped;  ///< message of the engine that broke off within this step; empty: it ended
};

/// What is gathered besides tensors and digests.
struct Gathered {
  bool writes = false;     ///< the write set and lifetimes are checked
  bool snapshots = false;  ///< whole caches
};

/// An engine on its way through a plan.
class Walk {
 public:
  Walk(std::unique_ptr<Engine> engine, RunPlan plan, Gathered gathered);
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  const SourceInfo& info() const { return source_->info(); }
  const RunPlan& plan() const { return plan_; }
  const StepPlan* upcoming() const { return stopped_ ? nullptr : source_->upcoming(); }
  Engine& engine() { return *engine_; }
  void replace_rows(int layer, std::span<const Write> rows) { runner_->replace_rows(layer, rows); }

  /// Runs the next step. A SubjectError or InternalError of the engine ends the walk with what was published
  /// until then; a UsageError says that the engine does not compute this run, and is thrown.
  SeenStep next(StageHooks hooks = {});

 private:
  RunPlan plan_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<LiveSource> source_;
  bool stopped_ = false;
};

/// The run whose bits are to be explained.
class Foreign {
 public:
  virtual ~Foreign() = default;
  virtual const SourceInfo& info() const = 0;
  virtual Gathered gathered() const = 0;
  /// Steps are asked for in ascending order; empty: the run does not hold this one.
  virtual std::optional<SeenStep> step(std::int64_t index) = 0;
};
std::unique_ptr<Foreign> foreign_engine(std::unique_ptr<Engine> engine, RunPlan plan, bool check_writes);
/// The reader must outlive it.
std::unique_ptr<Foreign> foreign_dump(io::DumpReader& dump);

/// Bytes that an observation holds in tensors.
std::int64_t bytes_of(const StepObservation& step);

}  // namespace dsv4::oracle::explain
