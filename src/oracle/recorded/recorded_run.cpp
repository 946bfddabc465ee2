#include "oracle/recorded/recorded_run.hpp"

#include <algorithm>
#include <map>

#include "model/seeded.hpp"
#include "oracle/golden/step_lines.hpp"
#include "oracle/recorded/plan_digest.hpp"
#include "oracle/runner.hpp"
#include "scenario/plan.hpp"

namespace dsv4::oracle::recorded {
namespace {

/// "000000 layer_00/q.up/q bfloat16 130,4,512 <digest>" without the step, cut before the digest.
std::pair<std::string, std::string> split_line(const std::string& line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  require(first != std::string::npos && first < last, "a line of a step has fewer than three words");
  return {line.substr(first + 1, last - first - 1), line.substr(last + 1)};
}

std::vector<StepMismatch::Line> compare_lines(const StepRecord& recorded, const StepRecord& found) {
  if (recorded.lines.empty()) return {};
  std::map<std::string, std::string> other;
  for (const std::string& line : found.lines) other.insert(split_line(line));
  std::vector<StepMismatch::Line> differing;
  for (const std::string& line : recorded.lines) {
    const auto [place, value] = split_line(line);
    const auto at = other.find(place);
    if (at == other.end()) {
      differing.push_back({place, value, "absent (or another dtype or shape)"});
      continue;
    }
    if (at->second != value) differing.push_back({place, value, at->second});
    other.erase(at);
  }
  for (const auto& [place, value] : other) differing.push_back({place, "absent", value});
  return differing;
}

}  // namespace

std::vector<Run> runs_of(const scenario::Scenario& scenario) {
  if (!scenario.weights_paths.empty() || !scenario.hidden_path.empty())
    throw UsageError(scenario.file + ": has inputs from files; only runs with seeded inputs can be recorded");
  std::vector<Run> runs;
  for (const scenario::Scenario& one : scenario::expand(scenario)) {
    runs.push_back({one.name, one});
    if (one.profile_given) continue;
    runs.push_back({one.name, one});
    runs.back().scenario.profile = profile_named("official");
  }
  return runs;
}

RunRecord planned(const Run& run) {
  return {run.name, run.profile(), plan_digest(scenario::plan(run.scenario)), {}};
}

RunRecord computed(const Run& run, const std::string& engine_name, const EngineFactory& factory,
                   EngineInfo* info) {
  RunPlan plan = scenario::plan(run.scenario);
  RunRecord record{run.name, run.profile(), plan_digest(plan), {}};
  const std::unique_ptr<Engine> engine =
      factory(engine_name, plan.config, seeded_weights(plan.config), seeded_hidden(plan.config));
  const EngineInfo about = engine->info();
  if (!about.bit_exact) {
    throw UsageError("engine '" + engine_name +
                     "' is not exact in bits: its digests would equal no other engine's");
  }
  if (info != nullptr) *info = about;
  if (!about.graphs) run_graphs_as_steps(plan);
  Runner runner(*engine, Selection{});
  for (const StepPlan& step : plan.steps) {
    const StepObservation observation = runner.run(step);
    StepRecord one{"", golden::step_lines(observation)};
    const std::vector<std::string> writes = golden::write_lines(observation);
    one.lines.insert(one.lines.end(), writes.begin(), writes.end());
    one.digest = golden::digest_of_lines(one.lines);
    record.steps.push_back(std::move(one));
  }
  return record;
}

std::vector<StepMismatch> compare(const RunRecord& recorded, const RunRecord& found) {
  std::vector<StepMismatch> mismatches;
  const StepRecord none{"absent", {}};
  for (std::size_t step = 0; step < std::max(recorded.steps.size(), found.steps.size()); ++step) {
    const StepRecord& a = step < recorded.steps.size() ? recorded.steps[step] : none;
    const StepRecord& b = step < found.steps.size() ? found.steps[step] : none;
    if (a.digest == b.digest) continue;
    mismatches.push_back({static_cast<std::int64_t>(step), a.digest, b.digest, compare_lines(a, b)});
  }
  return mismatches;
}

}  // namespace dsv4::oracle::recorded
