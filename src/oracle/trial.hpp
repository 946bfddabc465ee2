/// One scenario on two sides: where they first differ, or that they do not. What `fuzz` and `shrink` ask many
/// times over.
///
/// A pair is two engines in lockstep (`reference:wide`), two cache forms of one engine (`ring:paged`), or an
/// engine against itself with every request alone, one token a step (`sequential`). Cache forms are compared
/// step by step: the batch and all that it computes row by row, live state after every event in logical
/// order, never where it lies. Writes are checked against the plan on the side under test.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compare/comparison.hpp"
#include "compare/rule.hpp"
#include "model/engine.hpp"
#include "oracle/data_coverage.hpp"
#include "oracle/lockstep.hpp"
#include "oracle/selection.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::oracle {

/// One side of a pair: an engine, and what it has instead of the scenario's choices.
struct TrialSide {
  std::string engine = "reference";
  std::optional<C4State> c4_state;
  std::optional<C128State> c128_state;
  std::optional<Profile> profile;
};

struct TrialPair {
  std::string name;     ///< as asked for, "ring:paged"
  TrialSide reference;  ///< not used by `sequential`
  TrialSide subject;
  bool sequential = false;
  Feed feed = Feed::independent;
  std::optional<compare::RuleSet> rules;  ///< empty: bits between engines exact in bits, else values
  std::vector<std::string> rule_overrides;
  Selection compared;  ///< tensors and steps that are judged
  bool check_writes = true;
};

/// "A:B" with A and B engines or cache forms (ring, paged, page4align), or "sequential". Forms and
/// `sequential` run on `engine`. A pair with `wide` is fed. Throws UsageError that lists the forms.
TrialPair trial_pair(std::string_view text, const std::string& engine = "reference");

/// Where two sides part first.
struct Divergence {
  std::string stage;   ///< "q.up", "batch", "state", or "writes" for a finding, "engine" for an error
  std::string tensor;  ///< of the stage; the cache of a finding
  std::string kind;    ///< a verdict, the kind of a finding, or "error"
  std::int64_t step = 0;
  std::string sentence;  ///< what, where

  /// What shrinking keeps.
  bool same_signature(const Divergence& other) const {
    return stage == other.stage && tensor == other.tensor && kind == other.kind;
  }
  std::string signature() const;
};

/// What makes the sides.
struct TrialTools {
  EngineFactory engine;
  std::function<std::shared_ptr<const WeightSource>(const scenario::Scenario&, const RunConfig&)> weights;
  std::function<std::shared_ptr<const HiddenSource>(const scenario::Scenario&, const RunConfig&)> hidden;
  /// Puts a fault into the subject; empty: none.
  std::function<std::unique_ptr<Engine>(std::unique_ptr<Engine>, std::shared_ptr<const WeightSource>)> fault;
  /// Puts kernel models in the place of stages: of the subject (of the other side, where the subject computes in
  /// float64), and of both sides of a pair of cache forms; empty: none. `fed`: state comes from the other side.
  std::function<std::unique_ptr<Engine>(std::unique_ptr<Engine>, std::shared_ptr<const WeightSource>, bool fed)>
      models;
  /// What rules know of tensors that such models computed on one side.
  std::function<void(compare::Rules&, const RunConfig&)> models_rules;
};
/// Seeded inputs, or the files that a scenario names are the caller's to supply.
TrialTools seeded_tools(EngineFactory engine);

class Trial {
 public:
  Trial(TrialPair pair, TrialTools tools);

  /// Runs a scenario up to the first step that differs. Throws UsageError for a scenario that this pair
  /// cannot run, SubjectError when an engine cannot be made.
  std::optional<Divergence> run(const scenario::Scenario& scenario);

  /// Called after every run of a scenario.
  void on_run(std::function<void()> hook) { on_run_ = std::move(hook); }

  /// Tensors and states compared so far, and what the plans and the numbers of all runs showed.
  std::int64_t compared() const { return compared_; }
  std::set<std::string> facts() const;

  const TrialPair& pair() const { return pair_; }

 private:
  struct Side;
  std::unique_ptr<Side> make_side(const scenario::Scenario& scenario, const TrialSide& wanted, bool subject);
  std::optional<Divergence> lockstep(const scenario::Scenario& scenario);
  std::optional<Divergence> sequential(const scenario::Scenario& scenario);

  TrialPair pair_;
  TrialTools tools_;
  std::int64_t compared_ = 0;
  std::set<std::string> plan_facts_;
  DataCoverage data_facts_;
  std::function<void()> on_run_;
};

}  // namespace dsv4::oracle
