/// Two runs of one plan, step by step: an engine against another engine or against a dump.
///
/// Feeding. With Feed::reference each stage is judged on identical inputs and state: one side leads, and
/// before every stage of the other side all tensors of the step are the leader's; after the stage its results
/// are taken as they are, then replaced by the leader's, and the cache rows that the leader's stage wrote
/// overwrite the follower's (Engine::set_tensor, Engine::apply_writes). A follower that is not exact in bits
/// is given the leader's tensors of a stage before it, too: it computes each step of the stage with the
/// leader's value of the step before, and publishes its own. The leader is the side that is exact in bits,
/// the reference if both are; it runs first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/observation.hpp"
#include "oracle/runner.hpp"

namespace dsv4::oracle {

enum class Feed : std::uint8_t { independent, reference };

/// Cache rows of one stage, from the tensors that carry them (files hold no writes). The plan gives owners;
/// rows that a restore step keeps are left out. Throws UsageError naming a tensor that is missing.
std::vector<Write> writes_from_tensors(const RunConfig& config, const StepPlan& plan, int layer, Stage stage,
                                       const StepObservation& observation);

class Lockstep {
 public:
  struct Pair {
    std::optional<StepObservation> reference;  ///< empty: a dump that does not hold the step
    StepObservation subject;
  };

  /// `subject` runs an engine. `reference` is another LiveSource of the same plan, or a dump. The sources
  /// must outlive the lockstep. Throws UsageError if the two cannot be fed to each other.
  Lockstep(LiveSource& subject, ObservationSource& reference, Feed feed);

  /// The next step on both sides; empty at the end of the plan.
  std::optional<Pair> next();

  /// After next() threw: the step as far as the subject came, and the reference's; empty if there is nothing to
  /// compare.
  std::optional<Pair> broken_off();

 private:
  StepObservation follow(LiveSource& follower, const StepObservation& leader);
  std::optional<StepObservation> next_reference(std::int64_t step);

  LiveSource& subject_;
  ObservationSource& reference_;
  LiveSource* live_reference_;  ///< null: a dump
  Feed feed_;
  bool subject_leads_ = false;
  std::optional<StepObservation> pending_;  ///< a dump's step that lies ahead
  std::optional<StepObservation> led_;      ///< the reference's step while the subject computes it
};

}  // namespace dsv4::oracle
