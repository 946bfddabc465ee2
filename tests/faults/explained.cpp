#include "faults/explained.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/seeded.hpp"
#include "oracle/explain/explain.hpp"
#include "scenario/plan.hpp"

namespace dsv4::test {

using namespace oracle;

Explained explained(const std::string& folder, const std::string& engine, const EngineFactory& factory,
                    const Case& one) {
  const scenario::Scenario scenario = scenario::load_scenario(folder + "/" + one.scenario + ".yaml");
  const auto planned = [&scenario](const Profile& profile) {
    scenario::Scenario own = scenario;
    own.profile = profile;
    return scenario::plan(own);
  };
  RunPlan plan = planned(scenario.profile);
  explain::Bench bench;
  bench.plan = planned;
  bench.engine = factory;
  bench.weights = seeded_weights(plan.config);
  bench.hidden = seeded_hidden(plan.config);
  bench.profile = scenario.profile;
  bench.seconds = 1e9;
  auto made = faults::inject(factory(engine, plan.config, bench.weights, bench.hidden), bench.weights,
                             faults::parse_injection(one.injection));
  const auto foreign = explain::foreign_engine(std::move(made), std::move(plan), true);
  const explain::Explanation explanation = explain::explain(bench, *foreign);

  const std::string injected = one.injection.substr(0, one.injection.find(':'));
  Explained result;
  result.sentence = explanation.sentence;
  std::set<std::string> families;
  std::set<std::string> names;
  for (const explain::Evidence* evidence : explanation.reproducing()) {
    families.insert(evidence->candidate.family);
    names.insert(evidence->candidate.name);
  }
  result.named = families.contains(injected);
  result.certain = families.size() == 1;
  result.wrong = result.certain && !result.named;
  for (const std::string& name : families) {
    if (result.named && name == injected) continue;
    result.alike += (result.alike.empty() ? "" : ", ") + name;
  }
  result.as = result.named ? injected : "";
  if (!result.alike.empty()) result.as += (result.as.empty() ? "" : ", ") + result.alike;
  if (result.named && !names.contains(one.injection)) result.as += " (other parameters)";
  // Behind its stage an index out of range is left out by a device, and followed by the reference.
  const bool up_to_stage =
      engine != "reference" && families.empty() &&
      std::ranges::any_of(explanation.ranked, [&](const explain::Evidence& evidence) {
        return evidence.fit == explain::Evidence::Fit::stage && evidence.candidate.family == injected;
      });
  if (up_to_stage) {
    result.named = true;
    result.as = injected + " (its stage)";
  } else if (families.empty()) {
    result.as = name(explanation.outcome);
    if (const explain::TensorReading* reading = explanation.certain_reading())
      result.as += ": " + reading->reading.name;
    else if (explanation.outcome == explain::Explanation::Outcome::stage_only)
      result.as += ": " + explanation.ranked.front().candidate.name;
  }
  return result;
}

}  // namespace dsv4::test
