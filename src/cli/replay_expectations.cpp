/// What a scenario expects of its run: coverage, and the same as every request alone.
#include <fmt/format.h>

#include <set>

#include "cli/engines.hpp"
#include "cli/json_lines.hpp"
#include "cli/replay_run.hpp"
#include "scenario/coverage.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {

bool ReplayRun::print_expectation(const std::string& what, bool holds, const std::string& detail) {
  if (shared_.json) {
    print_json_line({{"type", "expectation"}, {"expect", what}, {"holds", holds}, {"detail", detail}});
  } else if (!holds) {
    fmt::print("expectation failed: {}: {}\n", what, detail);
  }
  return holds;
}

bool ReplayRun::expectations_hold() {
  bool hold = true;
  if (!scenario_.expect.covers.empty()) {
    std::set<std::string> covered = scenario::plan_coverage(subject_->plan);
    covered.insert(data_coverage_.facts().begin(), data_coverage_.facts().end());
    std::string missing;
    for (const std::string& fact : scenario_.expect.covers) {
      if (!covered.contains(fact)) missing += (missing.empty() ? "" : ", ") + fact;
    }
    hold &= print_expectation("covers", missing.empty(), missing.empty() ? "" : "not covered: " + missing);
  }
  if (sequential_) {
    scenario::Scenario scenario = scenario_;
    scenario.profile = subject_profile_;
    if (options_.seed) scenario.seed = *options_.seed;
    const compare::StepComparison comparison =
        sequential_->finish(scenario::sequential_of(scenario), options_.engine,
                            engine_factory(options_.compute.engine), weights_, hidden_);
    const compare::Totals totals = sequential_->totals();
    std::string detail = fmt::format("{} tensors and states compared", totals.compared);
    const bool same = totals.passed() && !totals.nothing_compared();
    if (!comparison.findings.empty()) detail = comparison.findings.front().message;
    if (totals.first_divergence) {
      const compare::Comparison& first = *totals.first_divergence;
      detail = fmt::format("layer {} {}/{} differs, request '{}', position {}", first.layer, first.stage,
                           first.tensor, first.meaning.request, first.meaning.position.value_or(-1));
    }
    hold &= print_expectation("same_as sequential", same, detail);
  }
  return hold;
}

}  // namespace dsv4::cli
