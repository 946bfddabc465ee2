/// Scenario -> RunPlan: rows, positions, content ids, pages, state bases, what every step restores and
/// releases (docs/scenarios.md, what an event becomes). Plans do not depend on threads, machine or engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/step_plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario {

/// What a command line replaces in a scenario.
struct Overrides {
  std::optional<std::string> profile;  ///< name of a profile; replaces the scenario's, single axes included
  std::optional<std::uint64_t> seed;
  std::optional<C4State> c4_state;
  std::optional<C128State> c128_state;
  std::optional<Allocate> allocate;
};

/// Makes a run executable. Throws UsageError "FILE:LINE:COLUMN: step N: ..." for an impossible event and for
/// an empty pool; InternalError for a sweep that was not expanded.
RunPlan plan(const Scenario& scenario, const Overrides& overrides = {});

/// For `same_as: sequential`: one plan for every request that ran, in order of admission, in which it runs
/// alone, one token a step. Each holds the tokens the request had committed when the run (or the request)
/// ended, with their content ids and request indices; the configuration is that of plan() but for the pool
/// sizes.
std::vector<RunPlan> sequential_of(const Scenario& scenario, const Overrides& overrides = {});

/// One line of `replay --check`.
struct StepSummary {
  std::int64_t step = 0;
  std::string kind;         ///< "compute", "restore", "lifecycle", "fill", "graph"
  std::string event;        ///< short, for people: "prefill a 37"
  std::string source;       ///< "FILE:LINE"
  std::int64_t tokens = 0;  ///< rows that are not padding
  std::int64_t padding = 0;
  std::int64_t allocated = 0;  ///< pages handed out, all pools
  std::int64_t released = 0;   ///< pages given back
  std::int64_t pages = 0;      ///< pages held after the step, all pools; shared ones once
};
std::vector<StepSummary> step_table(const RunPlan& run);

/// "compute", "restore", "lifecycle", "fill" or "graph".
std::string_view name(StepKind kind);

}  // namespace dsv4::scenario
