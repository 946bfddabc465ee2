// Every script of scenarios/ plans, and its plan shows what it expects.
#include <filesystem>

#include "scenario/coverage.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

bool shows_in_plans(const std::string& fact) {
  return coverage_fact(fact)->seen == Seen::plan;
}

/// Plans every run of a script; returns the facts of all.
std::set<std::string> check_script(const std::filesystem::path& file) {
  const Scenario scenario = load_scenario(file.string());
  CHECK(scenario.name == file.stem().string());
  CHECK_FALSE(scenario.description.empty());
  CHECK_FALSE(scenario.fault_class.empty());
  CHECK_FALSE(scenario.expect.covers.empty());
  std::set<std::string> all;
  for (const Scenario& run : expand(scenario)) {
    INFO(run.name);
    const std::set<std::string> facts = plan_coverage(plan(run));
    all.insert(facts.begin(), facts.end());
    for (const std::string& fact : run.expect.covers) {
      INFO(fact);
      CHECK((facts.contains(fact) || !shows_in_plans(fact)));
    }
  }
  return all;
}

std::vector<std::filesystem::path> scripts_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  return files;
}

TEST_CASE("scripts of the repository") {
  std::set<std::string> covered;
  std::set<std::string> stems;  // records of runs are files of these names
  for (const char* folder : {"scenarios", "scenarios/reference"}) {
    for (const auto& file : scripts_in(folder)) {
      CHECK(stems.insert(file.stem().string()).second);
      covered.merge(check_script(file));
    }
  }
  CHECK(stems.size() >= 60);
  // Together they show everything that a plan can show.
  for (const CoverageFact& fact : coverage_catalogue()) {
    const std::string name(fact.name);
    if (!shows_in_plans(name)) continue;
    INFO(name);
    CHECK(covered.contains(name));
  }
  std::set<std::string> classes;
  for (const auto& file : scripts_in("scenarios/real")) {
    CHECK(stems.insert(file.stem().string()).second);
    check_script(file);
    classes.insert(load_scenario(file.string()).fault_class);
  }
  CHECK(classes.size() >= 8);
}

}  // namespace
}  // namespace dsv4::scenario
