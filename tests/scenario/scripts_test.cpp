// Every script of scenarios/ plans, and its plan shows what it expects.
#include <filesystem>

#include "scenario/coverage.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

/// Facts that only a run of the numbers can show.
bool seen_in_plans(const std::string& fact) {
  for (const CoverageFact& known : coverage_catalogue()) {
    if (known.name == fact) return known.description.find("seen in the numbers") == std::string_view::npos;
  }
  return false;
}

TEST_CASE("scripts of the repository") {
  int scripts = 0;
  std::set<std::string> covered;
  for (const auto& entry : std::filesystem::directory_iterator("scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    ++scripts;
    const Scenario scenario = load_scenario(entry.path().string());
    CHECK(scenario.name == entry.path().stem().string());
    CHECK_FALSE(scenario.description.empty());
    for (const Scenario& run : expand(scenario)) {
      INFO(run.name);
      const std::set<std::string> facts = plan_coverage(plan(run));
      covered.insert(facts.begin(), facts.end());
      for (const std::string& fact : run.expect.covers) {
        INFO(fact);
        CHECK((facts.contains(fact) || !seen_in_plans(fact)));
      }
    }
  }
  CHECK(scripts >= 20);
  // Together they show everything that a plan can show.
  for (const CoverageFact& fact : coverage_catalogue()) {
    const std::string name(fact.name);
    if (!seen_in_plans(name)) continue;
    INFO(name);
    CHECK(covered.contains(name));
  }
}

}  // namespace
}  // namespace dsv4::scenario
