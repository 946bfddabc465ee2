/// The fault matrix: every fault and every bit flip, put into an engine and compared with the reference on
/// the smallest scenario that shows it; the variations that are no faults; the same runs without a fault.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"
#include "model/observation.hpp"
#include "oracle/faults/catalogue.hpp"

namespace dsv4::test {

struct Case {
  std::string injection;
  std::string scenario;
  std::string expected;      ///< stage, "state" or "writes"
  std::string verdict = {};  ///< of a variation that is no fault
};
std::vector<Case> fault_cases();
std::vector<Case> bit_flip_cases();
std::vector<Case> control_cases();
std::vector<std::string> scenario_names();

/// What a run said first.
struct Report {
  std::string stage;   ///< empty: nothing was wrong
  std::string detail;  ///< "step 1 kv.window/codes", or the finding
  std::int64_t fired = 0;
};

/// A scenario with its inputs and what the reference makes of it.
struct World {
  RunPlan plan;
  std::shared_ptr<const WeightSource> weights;
  std::shared_ptr<const HiddenSource> hidden;
  SourceInfo info;
  std::vector<StepObservation> steps;
};

class Matrix {
 public:
  Matrix(std::string folder, std::string engine, EngineFactory factory);

  /// Runs the subject with the fault until it differs; bits.
  Report run_fault(const Case& one);
  /// Runs a variation to its end. Empty if all is as it must be, else what is not.
  std::string run_control(const Case& one, std::string& seen);
  /// Difference of all visible index scores from the reference's, relative to their size (Frobenius).
  double score_error(const Case& one);
  /// The subject without a fault; empty if it is the reference in every bit.
  std::string run_clean(const std::string& scenario);
  /// What faults compute, without a change: empty if it is what the engine computes.
  std::string run_unchanged(const std::string& scenario);

 private:
  /// A reference engine as it stands after step `last`.
  std::unique_ptr<Engine> beside_until(const World& known, std::int64_t last);
  const World& world(const std::string& scenario);
  std::unique_ptr<oracle::faults::FaultyEngine> subject(const World& world, const std::string& injection);

  std::string folder_;
  std::string engine_;
  EngineFactory factory_;
  std::map<std::string, World> worlds_;
};

}  // namespace dsv4::test
