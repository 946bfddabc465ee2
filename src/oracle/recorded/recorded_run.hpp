/// The runs of a scenario as a record holds them: a digest a step of everything that an engine exact in bits
/// produced, so that another engine can be held against it later, elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/engine.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::oracle::recorded {

/// One run: an expansion of a scenario, under one profile.
struct Run {
  std::string name;  ///< "rewind[to=3]"
  scenario::Scenario scenario;
  const std::string& profile() const { return scenario.profile.name; }
};

/// All runs of a scenario, in order: every expansion of its sweep; under `canonical` and `official` where the
/// scenario names no profile. Throws UsageError for a scenario with inputs from files, which a record cannot
/// pin.
std::vector<Run> runs_of(const scenario::Scenario& scenario);

struct StepRecord {
  std::string digest;  ///< of its lines
  std::vector<std::string>
      lines;  ///< golden::step_lines, then golden::write_lines; a record keeps them of few
};

struct RunRecord {
  std::string name;
  std::string profile;
  std::string plan;  ///< plan_digest
  std::vector<StepRecord> steps;
};

/// The record of a run without its steps: what tells whether a stored record is still about this run.
RunRecord planned(const Run& run);

/// Runs it. Throws UsageError for an engine that is not exact in bits. `info` receives what the engine says
/// of itself.
RunRecord computed(const Run& run, const std::string& engine, const EngineFactory& factory,
                   EngineInfo* info = nullptr);

/// A step whose digests differ, and where: at a line if the record kept them, else nowhere nearer.
struct StepMismatch {
  std::int64_t step = 0;
  std::string recorded;
  std::string found;
  struct Line {
    std::string place;  ///< "layer_00/q.up/q bfloat16 130,4,512"
    std::string recorded;
    std::string found;
  };
  std::vector<Line> lines;
};

/// Steps in which two records of one plan differ.
std::vector<StepMismatch> compare(const RunRecord& recorded, const RunRecord& found);

}  // namespace dsv4::oracle::recorded
