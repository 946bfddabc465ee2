/// What a run exercises, derived from its plan alone: names for `expect: covers:` and `list --coverage`.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "model/step_plan.hpp"

namespace dsv4::scenario {

struct CoverageFact {
  std::string_view name;
  std::string_view description;  ///< one line
};

/// All facts, grouped by the part before the dot.
std::span<const CoverageFact> coverage_catalogue();
bool is_coverage_fact(std::string_view name);

/// The facts that hold for a run.
std::set<std::string> plan_coverage(const RunPlan& run);

}  // namespace dsv4::scenario
