/// One run of `replay`: engines, feeding, comparison, dump, checks and expectations, step by step.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cli/replay_options.hpp"
#include "compare/comparator.hpp"
#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "oracle/data_coverage.hpp"
#include "oracle/faults/faulty_engine.hpp"
#include "oracle/runner.hpp"
#include "oracle/sequential.hpp"

namespace dsv4::cli {

class ReplayRun {
 public:
  ReplayRun(const scenario::Scenario& scenario, const ReplayOptions& options, const Shared& shared,
            report::Reporter& reporter, std::string dump_path);
  ~ReplayRun();

  int run();

 private:
  /// An engine with what drives it.
  struct Side {
    RunPlan plan;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<oracle::Runner> runner;
    std::unique_ptr<oracle::LiveSource> source;
  };

  void choose_profiles();
  void set_up_subject();
  void set_up_reference();
  void share_graph_steps();
  void set_up_comparison();
  void set_up_dump();
  compare::Due make_due() const;
  void report_later_steps();
  std::unique_ptr<Side> make_side(const std::string& engine, const Profile& profile, const std::string& fault,
                                  bool model_kernels);

  /// One step; false when the run must stop.
  bool step();
  void judge(oracle::Lockstep::Pair& pair, compare::StepComparison& comparison);
  /// The subject threw: says what differed before it did.
  void report_broken_step(const StepPlan& broken);
  void dump(StepObservation observation);
  void checkpoint(std::int64_t step);
  bool expectations_hold();
  bool print_expectation(const std::string& what, bool holds, const std::string& detail);
  std::string reproduce(std::int64_t step) const;
  void report_times();
  int finish(bool interrupted);

  const scenario::Scenario& scenario_;
  const ReplayOptions& options_;
  const Shared& shared_;
  report::Reporter& reporter_;
  std::string dump_path_;

  oracle::Selection selection_;  ///< what is dumped and compared
  oracle::Selection gathered_;   ///< what is observed
  Profile subject_profile_;
  Profile reference_profile_;
  std::shared_ptr<const WeightSource> weights_;
  std::shared_ptr<const HiddenSource> hidden_;
  std::unique_ptr<Side> subject_;
  oracle::faults::FaultyEngine* faulty_ = nullptr;  ///< the subject, with --inject
  std::unique_ptr<Side> reference_;  ///< null: a dump, or nothing
  std::unique_ptr<io::DumpReader> reference_file_;
  ObservationSource* reference_source_ = nullptr;
  std::unique_ptr<oracle::Lockstep> lockstep_;
  std::unique_ptr<compare::Rules> rules_;
  std::unique_ptr<compare::Comparator> comparator_;
  std::unique_ptr<io::DumpWriter> writer_;
  std::unique_ptr<oracle::SequentialCheck> sequential_;
  oracle::DataCoverage data_coverage_;
  compare::ErrorTable errors_;
  compare::Totals own_totals_;  ///< where nothing is compared: findings of checks
  compare::Due due_;
  std::map<std::int64_t, std::string> checkpoints_;
  std::set<std::int64_t> checkpoints_written_;
  std::int64_t first_step_ = 0;  ///< of the plan, or behind a checkpoint
  std::int64_t selected_ = 0;    ///< chosen tensors that were published
  std::int64_t steps_done_ = 0;
  double comparing_ = 0;  ///< seconds
  double whole_ = 0;
  bool matched_ = false;  ///< a chosen tensor was compared; batch tables alone are no match
  bool stopped_ = false;  ///< before the plan's end
  bool nonfinite_failure_ = false;
};

}  // namespace dsv4::cli
