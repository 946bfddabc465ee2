#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/json_lines.hpp"
#include "cli/replay_options.hpp"
#include "oracle/dump_size.hpp"
#include "oracle/slots.hpp"
#include "scenario/coverage.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

void print_row(const scenario::StepSummary& step) {
  std::string event = step.event;
  if (event.size() > 60) event = event.substr(0, 57) + "...";
  fmt::print("{:>6}  {:<9}  {:>6}  {:>4}  {:>6}  {:>6}  {:>6}  {}\n", step.step, step.kind, step.tokens,
             step.padding, step.allocated, step.released, step.pages, event);
}

/// Facts of `expect: covers:` that the plan misses and that numbers cannot add.
std::string missing_facts(const scenario::Scenario& scenario, const RunPlan& plan) {
  const std::set<std::string> covered = scenario::plan_coverage(plan);
  std::string missing;
  for (const std::string& fact : scenario.expect.covers) {
    const scenario::CoverageFact* const about = scenario::coverage_fact(fact);
    if (about != nullptr && about->seen == scenario::Seen::plan && !covered.contains(fact)) missing += (missing.empty() ? "" : ", ") + fact;
  }
  return missing;
}

}  // namespace

bool print_plan(const scenario::Scenario& scenario, const RunPlan& plan, const oracle::Selection& selection,
                bool json) {
  const std::vector<scenario::StepSummary> steps = scenario::step_table(plan);
  std::int64_t tokens = 0;
  for (const scenario::StepSummary& step : steps) tokens += step.tokens;
  const std::int64_t caches = oracle::cache_bytes(plan.config);
  const std::int64_t dump = oracle::dump_bytes(plan, selection);
  const std::string missing = missing_facts(scenario, plan);
  if (json) {
    for (const scenario::StepSummary& step : steps) {
      print_json_line({{"type", "plan_step"},
                       {"step", step.step},
                       {"kind", step.kind},
                       {"event", step.event},
                       {"source", step.source},
                       {"tokens", step.tokens},
                       {"padding", step.padding},
                       {"allocated", step.allocated},
                       {"released", step.released},
                       {"pages", step.pages}});
    }
    print_json_line({{"type", "plan"},
                     {"scenario", scenario.name},
                     {"steps", steps.size()},
                     {"tokens", tokens},
                     {"layers", plan.config.layers.size()},
                     {"profile", plan.config.profile.name},
                     {"cache_bytes", caches},
                     {"dump_bytes", dump},
                     {"not_covered", missing}});
    return missing.empty();
  }
  std::string layers;
  for (const LayerKind kind : plan.config.layers)
    layers += (layers.empty() ? "" : ", ") + std::string(name(kind));
  fmt::print("{}: layers {}{}, profile {}, seed {}\n", scenario.name, layers,
             plan.config.chain ? ", chained" : "", plan.config.profile.name, plan.config.seed);
  fmt::print("{:>6}  {:<9}  {:>6}  {:>4}  {:>6}  {:>6}  {:>6}  {}\n", "step", "kind", "tokens", "pad", "new",
             "freed", "pages", "event");
  std::ranges::for_each(steps, print_row);
  fmt::print("{} steps, {} tokens; caches {}, a dump of the selected tensors up to {}\n", steps.size(),
             tokens, size_text(caches), size_text(dump));
  if (!missing.empty()) fmt::print("expectation failed: covers: not covered: {}\n", missing);
  return missing.empty();
}

}  // namespace dsv4::cli
