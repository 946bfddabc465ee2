/// What a run exercises: names for `expect: covers:` and `list --coverage`. Nearly all follow from the plan alone.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "model/step_plan.hpp"

namespace dsv4::scenario {

/// Where a fact shows.
enum class Seen : std::uint8_t {
  plan,     ///< the plan tells
  numbers,  ///< found by whoever runs it (oracle::DataCoverage)
  fault,    ///< in the numbers of a wrong run alone; no scenario can reach it
};

struct CoverageFact {
  std::string_view name;
  std::string_view description;  ///< one line
  Seen seen = Seen::plan;
};

/// All facts, grouped by the part before the dot.
std::span<const CoverageFact> coverage_catalogue();
/// Null if there is none of the name.
const CoverageFact* coverage_fact(std::string_view name);
bool is_coverage_fact(std::string_view name);

/// The facts that a run's plan shows.
std::set<std::string> plan_coverage(const RunPlan& run);

}  // namespace dsv4::scenario
