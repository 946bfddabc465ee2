#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "cli/replay_options.hpp"
#include "cli/save_shrunk.hpp"
#include "io/atomic_file.hpp"
#include "io/output_path.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter =
    R"(The smallest scenario keeps the first divergence's stage, tensor and kind. Of a sweep the first run that diverges is
shrunk. Exit code 2: nothing diverges.

Examples:
  dsv4-oracle shrink run.yaml --engine cuda --against reference
  dsv4-oracle shrink run.yaml --against reference --inject state-in-bf16 --output small.yaml
  dsv4-oracle shrink run.yaml --pair ring:paged --time 300
  dsv4-oracle shrink run.yaml                     with expect: {same_as: sequential})";

struct ShrinkOptions {
  ReplayOptions replay;  ///< those that shrink shares with replay
  std::string pair;
  std::string output;
  double seconds = 60;
};

oracle::TrialPair pair_of(const ShrinkOptions& options, const std::vector<scenario::Scenario>& runs) {
  const ReplayOptions& replay = options.replay;
  if (!options.pair.empty() && !replay.against.empty())
    throw UsageError("shrink: --pair goes without --against");
  oracle::TrialPair pair;
  if (!options.pair.empty()) {
    pair = oracle::trial_pair(options.pair, replay.engine);
  } else if (!replay.against.empty()) {
    if (replay.against.ends_with(".h5") || std::filesystem::is_regular_file(replay.against)) {
      throw UsageError("shrink: a dump holds the steps that it was made from; give an engine to --against");
    }
    pair = oracle::trial_pair(replay.against + ":" + replay.engine, replay.engine);
    pair.feed = oracle::Feed::independent;
  } else if (runs.front().expect.same_as == "sequential") {
    pair = oracle::trial_pair("sequential", replay.engine);
  } else {
    throw UsageError("shrink: needs --against ENGINE, --pair, or a scenario with same_as: sequential");
  }
  if (replay.feed == "reference") pair.feed = oracle::Feed::reference;
  if (!replay.rules.empty()) pair.rules = compare::rule_set_named(replay.rules);
  pair.rule_overrides = replay.rule_overrides;
  pair.compared = oracle::parse_selection(replay.stages, replay.tensors, "");
  pair.check_writes = replay.check_writes.value_or(true);
  if (!replay.against_profile.empty()) pair.reference.profile = profile_named(replay.against_profile);
  return pair;
}

std::vector<scenario::Scenario> runs_of(const ReplayOptions& options) {
  std::vector<scenario::Scenario> runs =
      scenario::expand(scenario::load_scenario(find_scenario(options.scenario)));
  std::erase_if(
      runs, [&](const scenario::Scenario& run) { return run.name.find(options.only) == std::string::npos; });
  if (runs.empty())
    throw UsageError("no run of " + options.scenario + " has '" + options.only + "' in its name");
  for (scenario::Scenario& run : runs) {
    run.profile_given |= !options.profile.empty() || !options.axes.empty();
    run.profile = side_profile(run.profile, options.profile, options.axes);
    if (options.seed) run.seed = *options.seed;
    if (!options.model.empty()) run.model.geometry = geometry_preset(options.model);
  }
  return runs;
}

/// Options that the saved scenario does not hold and that its command needs.
std::string repeated_options(const ReplayOptions& options) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {} {}", name, shell_quoted(value));
  };
  add("--inject", options.inject);
  if (options.model_kernels) text += " --model-kernels";
  add("--against-profile", options.against_profile);
  add("--rules", options.rules);
  for (const std::string& rule : options.rule_overrides) add("--rule", rule);
  for (const std::string& stages : options.stages) add("--stages", stages);
  for (const std::string& tensors : options.tensors) add("--tensors", tensors);
  return text;
}

int run(const ShrinkOptions& options, const Shared& shared) {
  const ReplayOptions& replay = options.replay;
  apply(replay.compute);
  const std::vector<scenario::Scenario> runs = runs_of(replay);
  const oracle::TrialPair pair = pair_of(options, runs);
  if (replay.model_kernels) check_model_kernels(pair);
  for (const oracle::TrialSide& side : {pair.reference, pair.subject}) check_engine_name(side.engine);
  check_engine_options(replay.compute.engine, {pair.subject.engine, pair.reference.engine});
  const std::string output = !options.output.empty()
                                 ? options.output
                                 : std::filesystem::path(runs.front().file).stem().string() + "-shrunk.yaml";
  io::OutputPaths paths;
  paths.reads(runs.front().file);
  paths.writes(output, io::OutputKind::text);

  oracle::Trial trial(pair, trial_tools(replay.compute, replay.inject, replay.model_kernels));
  oracle::Progress progress("shrink", 0, "scenarios", !shared.quiet);
  trial.on_run([&] { progress.advance(1); });
  for (const scenario::Scenario& one : runs) {
    const std::optional<oracle::Divergence> found = trial.run(one);
    if (oracle::interrupted()) return kInterrupted;
    if (!found) continue;
    const oracle::ShrunkFailure failure = oracle::shrink_failure(trial, one, *found, options.seconds);
    const std::string origin = one.name.ends_with(']') ? one.file + ", run " + one.name : one.file;
    io::AtomicFile file(output);
    file.write(saved_text(failure, pair, output, origin, repeated_options(replay)));
    file.finish();
    if (shared.json) {
      print_json_line({{"type", "shrunk"},
                       {"stage", failure.divergence.stage},
                       {"tensor", failure.divergence.tensor},
                       {"kind", failure.divergence.kind},
                       {"sentence", failure.divergence.sentence},
                       {"from", size_of(one)},
                       {"to", size_of(failure.shrunk.scenario)},
                       {"tried", failure.shrunk.tried},
                       {"smallest", failure.shrunk.at_fixpoint},
                       {"file", output}});
    } else {
      fmt::print("{}: {}\n{} -> {}, {} scenarios tried{}: {}\n{}\n", failure.divergence.signature(),
                 failure.divergence.sentence, size_of(one), size_of(failure.shrunk.scenario),
                 failure.shrunk.tried, failure.shrunk.at_fixpoint ? "" : " before the time was over", output,
                 command_of(output, pair, repeated_options(replay)));
    }
    return oracle::interrupted() ? kInterrupted : kDone;
  }
  fmt::print(stderr,
             "dsv4-oracle: nothing diverges in {} ({} tensors and states compared), so there is nothing to "
             "shrink\n",
             replay.scenario, trial.compared());
  return kUsage;
}

}  // namespace

void add_shrink(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<ShrinkOptions>();
  ReplayOptions& replay = options->replay;
  CLI::App* const command =
      app.add_subcommand("shrink", "The smallest scenario with the same first divergence");
  command->footer(kFooter);
  command->add_option("scenario", replay.scenario, "Scenario file (YAML)")->type_name("SCENARIO")->required();
  command->add_option("--engine", replay.engine, "Engine under test: reference, wide or cuda")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--against", replay.against, "Engine to compare with")->type_name("ENGINE");
  command
      ->add_option("--pair", options->pair,
                   "A:B of engines or cache forms (ring, paged, page4align), or sequential")
      ->type_name("PAIR");
  command->add_option("--against-profile", replay.against_profile, "Profile of the engine compared with")
      ->type_name("NAME");
  command
      ->add_option("--feed", replay.feed,
                   "independent, or reference: every stage gets the same inputs and state")
      ->check(CLI::IsMember({"independent", "reference"}))
      ->capture_default_str();
  command->add_option("--inject", replay.inject, "Put a fault into the engine (see: list faults)")
      ->type_name("NAME[:key=value,...]");
  command->add_flag("--model-kernels", replay.model_kernels,
                    "Stages by models of the profile's production kernels (see: list kernels)");
  command->add_option("--rules", replay.rules, "bits: only equal passes; values: rounding differences pass")
      ->check(CLI::IsMember({"bits", "values"}));
  command->add_option("--rule", replay.rule_overrides, "Rule of some tensors, for example 'q.up/.*=ulp:1'")
      ->type_name("REGEX=RULE");
  command->add_option("--stages", replay.stages, "Judge these stages only")->type_name("GLOBS");
  command->add_option("--tensors", replay.tensors, "Judge these tensors only")->type_name("GLOBS");
  command->add_flag_callback(
      "--no-check-writes", [options] { options->replay.check_writes = false; },
      "Do not check what steps write");
  command->add_option("--model", replay.model, "Geometry of a preset instead of the scenario's")
      ->type_name("PRESET");
  command->add_option("--profile", replay.profile, "Numeric profile instead of the scenario's")
      ->type_name("NAME");
  command->add_option("--set", replay.axes, "Replace one axis of the profile")->type_name("AXIS=VALUE");
  command->add_option("--seed", replay.seed, "Seed instead of the scenario's")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--only", replay.only, "Of a sweep: runs whose name holds this text")
      ->type_name("TEXT");
  command->add_option("--time", options->seconds, "Stop after so many seconds with the smallest found")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "Where to save it; default: SCENARIO-shrunk.yaml, here")
      ->type_name("OUT.yaml");
  add_compute_options(*command, replay.compute);
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
