#include "oracle/fuzz.hpp"

#include <utility>

#include "oracle/interrupt.hpp"
#include "scenario/random_scenario.hpp"

namespace dsv4::oracle {
namespace {

class Watch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// A device whose context is lost fails at whatever comes next: it says nothing of smaller scenarios.
bool runs_again(Trial& trial) {
  try {
    return !trial.run(scenario::random_scenario(scenario::Dice(std::vector<std::uint32_t>{}), "smallest"));
  } catch (const SubjectError&) {
    return false;
  }
}

}  // namespace

ShrunkFailure shrink_failure(Trial& trial, const scenario::Scenario& scenario, const Divergence& found,
                             double seconds) {
  if (found.kind == "error" && !runs_again(trial)) return {{scenario, 0, false}, found};
  const Watch watch;
  Divergence last = found;
  const auto fails = [&](const scenario::Scenario& candidate) {
    const std::optional<Divergence> divergence = trial.run(candidate);
    if (!divergence || !divergence->same_signature(found)) return false;
    last = *divergence;
    return true;
  };
  const auto stop = [&] { return watch.seconds() > seconds || interrupted(); };
  scenario::Shrunk shrunk = scenario::shrink(scenario, fails, stop);
  return {std::move(shrunk), std::move(last)};
}

FuzzReport fuzz(const FuzzOptions& options, const std::vector<TrialPair>& pairs, const TrialTools& tools,
                const FuzzEvents& events) {
  FuzzReport report;
  std::vector<Trial> trials;
  trials.reserve(pairs.size());
  for (const TrialPair& pair : pairs) trials.emplace_back(pair, tools);
  std::set<std::string> known;
  const Watch watch;
  double shrinking = 0;
  const auto note = [&] {
    for (const Trial& trial : trials) {
      report.compared[trial.pair().name] = trial.compared();
      report.facts.merge(trial.facts());
    }
    report.seconds = watch.seconds() - shrinking;
  };
  while (report.scenarios < options.count && watch.seconds() < options.seconds &&
         known.size() < options.most_failures) {
    const std::uint64_t index = options.first + report.scenarios;
    const scenario::Scenario scenario = scenario::random_scenario(options.seed, index);
    for (Trial& trial : trials) {
      if (interrupted()) break;
      std::optional<Divergence> found;
      try {
        found = trial.run(scenario);
      } catch (const UsageError& error) {
        report.refused[trial.pair().name].emplace_back(scenario.name + ": " + error.what());
      }
      if (!found) continue;
      ++report.diverged;
      if (!known.insert(trial.pair().name + " " + found->signature()).second) continue;
      const double before = watch.seconds();
      Trial fresh(trial.pair(), tools);  // what shrinking runs is no coverage
      FuzzFailure failure{index, trial.pair().name, *found, scenario,
                          shrink_failure(fresh, scenario, *found, options.shrink_seconds)};
      shrinking += watch.seconds() - before;
      events.failed(failure);
    }
    if ((report.interrupted = interrupted())) break;
    ++report.scenarios;
    note();
    if (events.progress) events.progress(report);
  }
  note();
  return report;
}

}  // namespace dsv4::oracle
