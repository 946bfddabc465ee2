// Shrinking against predicates whose smallest scenario is known.
#include "scenario/shrink.hpp"

#include "scenario/random_scenario.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

bool never() {
  return false;
}

bool has_step(const Scenario& scenario,
              const std::function<bool(const RunConfig&, const StepPlan&)>& wanted) {
  const RunPlan run = plan(scenario);
  return std::ranges::any_of(run.steps, [&](const StepPlan& step) { return wanted(run.config, step); });
}

/// Some request ends a step at length n.
auto length_reached(std::int32_t n) {
  return [n](const Scenario& scenario) {
    return has_step(scenario, [n](const RunConfig&, const StepPlan& step) {
      return std::ranges::count(step.requests, n, &RequestStep::committed) > 0;
    });
  };
}

/// The first scenarios under a seed for which a predicate holds, shrunk; the steps as text.
template <class Fails>
std::vector<std::string> shrunk_texts(const Fails& fails, int count) {
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; static_cast<int>(texts.size()) < count && i < 3000; ++i) {
    const Scenario scenario = random_scenario(21, i);
    if (!fails(scenario)) continue;
    const Shrunk shrunk = shrink(scenario, fails, never);
    CHECK(shrunk.at_fixpoint);
    CHECK(fails(shrunk.scenario));
    texts.push_back(shrunk.scenario.text.substr(shrunk.scenario.text.find("model:")));
  }
  CHECK(static_cast<int>(texts.size()) == count);
  return texts;
}

TEST_CASE("a length is reached by one prefill") {
  for (const std::string& text : shrunk_texts(length_reached(131), 6)) {
    INFO(text);
    CHECK(text.find("layers: [") != std::string::npos);
    CHECK(text.find("cache:") == std::string::npos);
    CHECK(text.find("profile:") == std::string::npos);
    CHECK(text.find("seed:") == std::string::npos);
    const std::string steps = text.substr(text.find("steps:"));
    CHECK(std::count(steps.begin(), steps.end(), '\n') == 2);
    CHECK(steps.find("tokens: 131}") != std::string::npos);
  }
}

TEST_CASE("what needs an event keeps it and what it needs") {
  const auto fails = [](const Scenario& scenario) {
    return scenario.cache.c4_state == C4State::paged &&
           has_step(scenario, [](const RunConfig&, const StepPlan& step) {
             return step.kind == StepKind::restore && step.event.starts_with("{\"resume\"") &&
                    step.live.size() > 1;
           });
  };
  for (const std::string& text : shrunk_texts(fails, 4)) {
    INFO(text);
    CHECK(text.find("cache: {c4_state: paged}") != std::string::npos);
    const std::string steps = text.substr(text.find("steps:"));
    CHECK(std::count(steps.begin(), steps.end(), '\n') == 5);  // two requests, one leaves and comes back
    CHECK(steps.find("tokens: 1}") != std::string::npos);
  }
}

TEST_CASE("a smallest scenario stays, and a stopped search keeps what it has") {
  const Scenario smallest = test::parse(
      "name: n\nmodel: {preset: tiny, layers: [swa]}\nsteps:\n  - prefill: {request: a, tokens: 131}\n");
  const Shrunk same = shrink(smallest, length_reached(131), never);
  CHECK(same.at_fixpoint);
  CHECK(plan(same.scenario).steps.size() == 1);
  CHECK(same.scenario.steps.size() == 1);

  const Scenario large = test::parse(
      "steps:\n  - prefill: {request: a, tokens: 131}\n  - prefill: {request: b, tokens: 7}\n  - free: b\n");
  int calls = 0;
  const Shrunk stopped = shrink(large, length_reached(131), [&] { return ++calls > 2; });
  CHECK_FALSE(stopped.at_fixpoint);
  CHECK(stopped.tried == 2);
  CHECK(length_reached(131)(stopped.scenario));
}

}  // namespace
}  // namespace dsv4::scenario
