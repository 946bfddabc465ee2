/// What a run exercises: names for `expect: covers:` and `list --coverage`. Nearly all follow from the plan
/// alone; those marked "seen in the numbers" are found by whoever runs it.
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

/// The facts that a run's plan shows.
std::set<std::string> plan_coverage(const RunPlan& run);

}  // namespace dsv4::scenario
