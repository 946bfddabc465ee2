/// What reproduces a divergence. A foreign run is compared with the reference; then every candidate runs on
/// the reference, and its tensors are held against the foreign ones.
///
/// A candidate *reproduces* the run if every tensor, state digest, write and finding that was recorded
/// agrees, from the first step to the last one. If it agrees only up to the end of the stage that differed
/// first, it is `stage`. What several candidates reproduce alike is never put down to one of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/readings.hpp"
#include "compare/rule.hpp"
#include "oracle/explain/candidate.hpp"
#include "oracle/explain/walk.hpp"
#include "oracle/selection.hpp"

namespace dsv4::oracle::explain {

/// What runs the reference.
struct Bench {
  std::function<RunPlan(const Profile&)> plan;
  EngineFactory engine;
  std::shared_ptr<const WeightSource> weights;
  std::shared_ptr<const HiddenSource> hidden;
  Profile profile;  ///< of the reference
  compare::Rules rules{compare::RuleSet::bits};
  Selection compared;
  /// Kernel models and whatever else the caller knows; tried behind faults, axes and profiles.
  std::vector<Candidate> more;
  double seconds = 60;  ///< no candidate starts later
  std::int64_t memory = std::int64_t{2}
                        << 30;  ///< bytes of tensors kept; beyond it the run is judged up to there
};

/// Where the run leaves the reference.
struct FirstDifference {
  std::int64_t step = 0;
  int layer = -1;
  std::string
      stage;  ///< "q.up", "batch", "state", "writes" for a finding, "stopped" for an engine that broke off
  std::string tensor;  ///< of the stage; kind of a finding
  std::string detail;  ///< what and where, for people
  std::string event;
  std::optional<compare::Comparison> comparison;
};

/// How far a candidate agrees with the foreign run.
struct Evidence {
  enum class Fit : std::uint8_t {
    everything,  ///< all that was recorded
    stage,       ///< up to the end of the stage that differed first, not all behind it
    part,        ///< some of what differed
    none,        ///< nothing of it, or it differs already before
  };
  Candidate candidate;
  Fit fit = Fit::none;
  std::int64_t stage_equal = 0, stage_total = 0;  ///< tensors of the stage in its step
  std::int64_t later_equal = 0, later_total = 0;  ///< what was compared behind it
  double elements_explained = 0;                  ///< share of the stage's differing elements that agree now
  double error_removed = 0;  ///< share of the sum of |difference| of the first tensor, where it has numbers
  std::string first_left;    ///< the first thing behind the stage that still differs

  /// What it does away with: the larger of the two shares.
  double removed() const { return std::max(elements_explained, error_removed); }
};
std::string_view name(Evidence::Fit fit);

/// A reading, and of which tensor.
struct TensorReading {
  std::string tensor;  ///< "compress.pool/pooled"
  bool first = false;  ///< it is the tensor that differed first
  compare::Reading reading;
};

/// The reference with the foreign tensors of the stage in place: whether all else follows from them.
struct Isolation {
  std::int64_t equal = 0, total = 0;
  std::string first_left;
  std::string stopped;  ///< message of the reference, which broke off
};

struct Explanation {
  enum class Outcome : std::uint8_t {
    no_difference,
    explained,   ///< one thing reproduces everything
    ambiguous,   ///< several things do
    stage_only,  ///< something reproduces the stage, not all behind it
    read,        ///< nothing does, but the difference has a structure without exceptions
    unexplained,
  };
  Outcome outcome = Outcome::no_difference;
  std::optional<FirstDifference> first;
  std::vector<Evidence> ranked;  ///< best first; those that explain nothing are left out
  std::vector<TensorReading> readings;
  std::optional<Isolation> isolation;
  std::int64_t compared = 0;   ///< tensors, digests and lists of the run, by step
  std::int64_t differing = 0;  ///< elements, digests, writes and findings that differ in the recorded run
  std::int64_t dont_care = 0;  ///< differing elements that no rule judges
  std::int64_t first_step = 0, last_step = 0;  ///< recorded
  bool bits = true;                            ///< false: agreement is judged by rules
  bool whole_run = true;                       ///< false: memory ended the record before the run's end
  std::int64_t tried = 0, refused = 0, left_out = 0;
  std::string sentence;

  /// The candidates that reproduce everything.
  std::vector<const Evidence*> reproducing() const;
  /// One thing reproduces everything, all else was tried, and more differs than a few elements, which another fault
  /// might give as well.
  bool certain() const { return outcome == Outcome::explained && left_out == 0 && differing >= kFewest; }
  static constexpr std::int64_t kFewest = 8;
  /// A reading without exceptions of the tensor that differed first; null: none.
  const TensorReading* certain_reading() const;
};
std::string_view name(Explanation::Outcome outcome);

/// Called before every candidate: its number, how many there are, its name. Returning false ends the search.
using OnCandidate = std::function<bool(std::int64_t at, std::int64_t of, const std::string& name)>;

/// Throws UsageError if the foreign run cannot be compared with the reference at all, or holds no step of it.
Explanation explain(const Bench& bench, Foreign& foreign, const OnCandidate& on_candidate = {});

/// The sentence that a person can act on.
std::string sentence_of(const Explanation& explanation);

}  // namespace dsv4::oracle::explain
