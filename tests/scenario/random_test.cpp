// Random scenarios: valid, repeatable from seed and index, and together they reach what a plan can show.
#include "scenario/coverage.hpp"
#include "scenario/random_scenario.hpp"
#include "scenario/support.hpp"
#include "scenario/write_yaml.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

/// Random scenarios have small pools, short and few requests, unchanged inputs, and no chunks in graphs.
bool outside_grammar(std::string_view fact) {
  return fact.starts_with("address.") || fact.starts_with("position.") || fact.starts_with("seeded.") ||
         fact == "batch.wide" || fact == "graph.prefill";
}

TEST_CASE("random scenarios plan, and reach every fact that a plan can show") {
  std::set<std::string> reached;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Scenario scenario = random_scenario(7, i);
    const std::set<std::string> facts = plan_coverage(plan(scenario));
    reached.insert(facts.begin(), facts.end());
  }
  // Not of small random runs: high addresses and positions, edited inputs, long batches, pages full to the
  // last row.
  for (const CoverageFact& fact : coverage_catalogue()) {
    const std::string name(fact.name);
    const bool other = name.starts_with("address.") || name.starts_with("seeded.") ||
                       name == "position.beyond_original" || name == "batch.wide";
    if (fact.seen != Seen::plan || other) continue;
    INFO(name);
    CHECK(reached.contains(name));
  }
}

TEST_CASE("a random scenario follows from seed and index alone") {
  const std::string fifth = random_scenario(3, 5).text;
  CHECK(random_scenario(3, 4).text != fifth);
  CHECK(random_scenario(4, 5).text != fifth);
  CHECK(random_scenario(3, 5).text == fifth);
}

TEST_CASE("no choices make the smallest scenario") {
  const Scenario scenario = random_scenario(Dice(std::vector<std::uint32_t>{}), "none");
  CHECK(scenario.steps.size() == 1);
  CHECK(plan(scenario).steps.size() == 1);
  CHECK(write_yaml(scenario) == scenario.text);
}

}  // namespace
}  // namespace dsv4::scenario
