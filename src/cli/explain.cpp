#include "oracle/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/explain_report.hpp"
#include "cli/model_kernels.hpp"
#include "cli/replay_options.hpp"
#include "oracle/faults/catalogue.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"
#include "oracle/slots.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

using oracle::explain::Bench;
using oracle::explain::Explanation;
using oracle::explain::Foreign;

constexpr const char* kFooter =
    R"(The run under test is held against the reference. Every known fault (list faults), profile, axis and kernel model is
then tried on the reference. What gives the foreign bits in the stage that differs first and in all behind it is named;
what several things give alike is put down to none of them. Of two sides the one that is not plainly the reference is
explained: the engine if it is another one or has --inject, --profile or --model-kernels, else that of --against.
Exit code 1: something differs, explained or not; --json says which.

Examples:
  dsv4-oracle explain scenarios/mixed-batch.yaml --engine cuda --against reference
  dsv4-oracle explain mine.h5                                   a dump that holds its scenario
  dsv4-oracle explain run.yaml --against mine.h5                a dump of these steps
  dsv4-oracle explain run.yaml --against mine.h5 --rules values  differences that are more than rounding
  dsv4-oracle explain tests/faults/scenarios/csa-8.yaml --against reference --inject pool-halves-swapped)";

/// Caches up to this size are checked byte by byte after every step.
constexpr std::int64_t kSmallCaches = std::int64_t{4} << 20;

struct ExplainOptions {
  ReplayOptions replay;  ///< those that explain shares with replay
  double seconds = 60;
  std::size_t shown = 8;
};

/// A run of one scenario, prepared.
struct Case {
  scenario::Scenario scenario;
  Bench bench;
  std::unique_ptr<io::DumpReader> dump;
  std::unique_ptr<Foreign> foreign;
  std::string name;                                      ///< of the foreign run, for people
  const oracle::faults::FaultyEngine* faulty = nullptr;  ///< within the foreign run, with --inject
};

bool is_dump(const std::string& text) {
  const std::vector<std::string> engines = engine_names();
  return (std::filesystem::exists(text) || text.ends_with(".h5")) &&
         std::ranges::find(engines, text) == engines.end();
}

void require_bits(const SourceInfo& info, const std::string& what) {
  if (info.bit_exact) return;
  throw UsageError(
      fmt::format("explain: {} (engine {}) does not promise bits, so none can be named that reproduces them; "
                  "see replay --against "
                  "wide --feed reference",
                  what, info.engine));
}

/// The reference of a scenario, with what the caller compares.
void set_bench(Case& one, const ExplainOptions& options, const Profile& profile) {
  const ReplayOptions& replay = options.replay;
  Bench& bench = one.bench;
  bench.profile = profile;
  bench.plan = [scenario = one.scenario](const Profile& wanted) {
    scenario::Scenario own = scenario;
    own.profile = wanted;
    RunPlan plan = scenario::plan(own);
    oracle::run_graphs_as_steps(plan);
    return plan;
  };
  const RunPlan plan = bench.plan(profile);
  bench.engine = engine_factory(replay.compute.engine);
  bench.weights = weights_of(one.scenario, plan.config);
  bench.hidden = hidden_of(one.scenario, plan.config);
  bench.compared = oracle::parse_selection(replay.stages, replay.tensors, replay.steps);
  oracle::require_match(bench.compared, plan.config.layers, 0, static_cast<std::int64_t>(plan.steps.size()));
  bench.rules =
      compare::Rules(replay.rules.empty() ? compare::RuleSet::bits : compare::rule_set_named(replay.rules));
  for (const std::string& text : replay.rule_overrides) bench.rules.add_override(text);
  bench.seconds = options.seconds;
  bench.more = kernel_model_candidates(profile);
}

/// An engine of this side as the foreign run.
void set_foreign_engine(Case& one, const ExplainOptions& options, const std::string& engine,
                        const Profile& profile, bool changed) {
  const ReplayOptions& replay = options.replay;
  scenario::Scenario own = one.scenario;
  own.profile = profile;
  RunPlan plan = scenario::plan(own);
  auto made = one.bench.engine(engine, plan.config, one.bench.weights, one.bench.hidden);
  if (changed && replay.model_kernels) made = explained_with_kernels(std::move(made), one.bench.weights);
  if (changed && !replay.inject.empty()) {
    auto faulty = oracle::faults::inject(std::move(made), one.bench.weights,
                                         oracle::faults::parse_injection(replay.inject));
    one.faulty = faulty.get();
    made = std::move(faulty);
  }
  const bool small = oracle::cache_bytes(plan.config) <= kSmallCaches;
  const bool writes = replay.check_writes.value_or(small) && made->info().byte_state;
  one.name = fmt::format("engine {}, profile {}", made->info().name, profile.name);
  if (changed && replay.model_kernels) one.name += ", kernel models";
  if (changed && !replay.inject.empty()) one.name += ", fault " + replay.inject;
  one.foreign = oracle::explain::foreign_engine(std::move(made), std::move(plan), writes);
  require_bits(one.foreign->info(), "the engine under test");
}

void set_foreign_dump(Case& one, const std::string& path) {
  if (!one.dump) one.dump = std::make_unique<io::DumpReader>(path);
  require_bits(one.dump->info(), path);
  one.name = path;
  one.foreign = oracle::explain::foreign_dump(*one.dump);
  if (!one.dump->info().complete)
    fmt::print(stderr, "{}: ends early (the run that wrote it did not finish)\n", path);
}

/// explain RESULTS.h5: the dump says what it ran.
Case case_of_dump(const ExplainOptions& options) {
  const ReplayOptions& replay = options.replay;
  if (!replay.against.empty() || !replay.against_profile.empty() || !replay.inject.empty() ||
      replay.engine != "reference" || replay.model_kernels || !replay.model.empty() || !replay.only.empty())
    throw UsageError(
        "explain: a dump is explained by itself; --engine, --against, --against-profile, --inject, --model, "
        "--model-kernels and --only are for a scenario");
  check_engine_options(replay.compute.engine, {});
  Case one;
  one.dump = std::make_unique<io::DumpReader>(replay.scenario);
  const SourceInfo& info = one.dump->info();
  if (info.scenario.empty()) {
    throw UsageError(replay.scenario +
                     ": holds no scenario; give the scenario and name the dump with --against");
  }
  one.scenario = scenario::parse_scenario(info.scenario, replay.scenario);
  one.scenario.model.geometry = info.config.geometry;
  one.scenario.seed = replay.seed.value_or(info.config.seed);
  Profile profile = replay.profile.empty() ? info.config.profile : profile_named(replay.profile);
  profile = side_profile(profile, "", replay.axes);
  set_bench(one, options, profile);
  set_foreign_dump(one, replay.scenario);
  return one;
}

Case case_of_scenario(const scenario::Scenario& scenario, const ExplainOptions& options) {
  const ReplayOptions& replay = options.replay;
  Case one;
  one.scenario = scenario;
  if (replay.seed) one.scenario.seed = *replay.seed;
  const Profile subject = side_profile(scenario.profile, replay.profile, replay.axes);
  const Profile reference = replay.against_profile.empty() ? subject : profile_named(replay.against_profile);
  const bool plain = replay.engine == "reference" && replay.inject.empty() && !replay.model_kernels;
  const bool dump = is_dump(replay.against);
  if (!dump) check_engine_name(replay.against);
  if (!plain && replay.against != "reference")
    throw UsageError(fmt::format(
        "explain: one side must be the reference, so with --engine, --inject or --model-kernels it takes "
        "--against reference, not {}",
        replay.against));
  if (dump && !replay.against_profile.empty())
    throw UsageError("explain: --against-profile is for an engine; " + replay.against + " has its own");
  if (!dump && plain && replay.against != "reference") {
    set_bench(one, options, subject);
    set_foreign_engine(one, options, replay.against, reference, false);
  } else if (dump && plain) {
    set_bench(one, options, subject);
    set_foreign_dump(one, replay.against);
  } else {
    set_bench(one, options, reference);
    set_foreign_engine(one, options, replay.engine, subject, true);
  }
  return one;
}

int run_case(Case& one, const ExplainOptions& options, const Shared& shared) {
  oracle::Progress progress("explain", 0, "candidates", !shared.quiet);
  const auto start = std::chrono::steady_clock::now();
  const Explanation explanation = oracle::explain::explain(
      one.bench, *one.foreign, [&](std::int64_t at, std::int64_t of, const std::string& name) {
        progress.advance(1, fmt::format("{} of {}: {}", at + 1, of, name));
        return !oracle::interrupted();
      });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_explanation(explanation, {one.scenario.name, one.name, one.bench.profile.name, seconds, options.shown,
                                  shared.json});
  if (oracle::interrupted()) return kInterrupted;
  if (explanation.first) return kFailed;
  if (one.faulty == nullptr || one.faulty->fired() > 0) return kDone;
  fmt::print(stderr, "dsv4-oracle: the fault '{}' changed nothing in this run, so nothing was tested\n",
             options.replay.inject);
  return kUsage;
}

int run(const ExplainOptions& options, const Shared& shared) {
  const ReplayOptions& replay = options.replay;
  apply(replay.compute);
  if (replay.rules == "hopper-exact")
    throw UsageError("explain: --rules is bits or values; kernel models are tried in any case");
  if (!std::filesystem::exists(find_scenario(replay.scenario)))
    throw FileError(replay.scenario + ": does not exist");
  if (is_dump(replay.scenario) && !replay.scenario.ends_with(".yaml") && !replay.scenario.ends_with(".yml")) {
    Case one = case_of_dump(options);
    return run_case(one, options, shared);
  }
  if (replay.against.empty())
    throw UsageError(
        "explain: needs --against ENGINE or --against FILE.h5, or a dump that holds its scenario");
  check_engine_name(replay.engine);
  if (!replay.inject.empty()) oracle::faults::parse_injection(replay.inject);
  check_engine_options(replay.compute.engine, {replay.engine, replay.against});
  const std::vector<scenario::Scenario> runs = scenarios_of(replay);
  if (runs.size() > 1 && is_dump(replay.against))
    throw UsageError(replay.scenario + ": a dump holds one run; choose one of the sweep with --only");
  int code = kDone;
  for (const scenario::Scenario& scenario : runs) {
    if (runs.size() > 1 && !shared.json) fmt::print("{}\n", scenario.name);
    Case one = case_of_scenario(scenario, options);
    code = worse(code, run_case(one, options, shared));
    if (code == kInterrupted) break;
  }
  return code;
}

}  // namespace

void add_explain(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* const command = app.add_subcommand(
      "explain", "Name what reproduces a divergence bit for bit: fault, axis, profile, kernel");
  command->footer(kFooter);
  command
      ->add_option("scenario", options->replay.scenario,
                   "Scenario file (YAML), or a dump that holds its scenario")
      ->type_name("SCENARIO|RESULTS.h5")
      ->required();
  add_run_options(*command, options->replay);
  add_comparison_options(*command, options->replay);
  add_selection_options(*command, options->replay);
  command->add_flag_callback(
      "--no-check-writes", [options] { options->replay.check_writes = false; },
      "Do not check what steps write (default when caches are large)");
  command->add_option("--time", options->seconds, "No candidate starts after so many seconds")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--show", options->shown, "Candidates to list, the best ones")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_compute_options(*command, options->replay.compute);
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
