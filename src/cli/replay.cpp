#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>

#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/model_kernels.hpp"
#include "cli/replay_options.hpp"
#include "io/output_path.hpp"
#include "oracle/checkpoint.hpp"
#include "oracle/faults/catalogue.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  dsv4-oracle replay run.yaml                                   run it on the reference engine
  dsv4-oracle replay run.yaml --check                           print the steps, run nothing
  dsv4-oracle replay run.yaml --dump run.h5 --stages 'indexer.*' --steps 10:20
  dsv4-oracle replay run.yaml --against wide --feed reference   error of each stage, on identical inputs
  dsv4-oracle replay run.yaml --against captured.h5 --rules values --rule 'attention.core/out=ulp:2'
  dsv4-oracle replay run.yaml --model v4-flash --no-expect      the same steps with published geometry
  dsv4-oracle replay run.yaml --checkpoint 99:state.h5          and later: --resume state.h5)";

/// "[n=3,s=2]" of an expanded run's name, as a part of a file name: "-n3-s2"; empty for a run without a
/// sweep.
std::string expansion_suffix(const std::string& name) {
  const std::size_t open = name.rfind('[');
  if (open == std::string::npos || name.back() != ']') return "";
  std::string suffix = "-";
  for (const char c : name.substr(open + 1, name.size() - open - 2)) {
    if (c == ',')
      suffix += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-')
      suffix += c;
  }
  return suffix;
}

std::string with_suffix(const std::string& path, const std::string& suffix) {
  if (path.empty() || suffix.empty()) return path;
  const std::filesystem::path file(path);
  return (file.parent_path() / (file.stem().string() + suffix + file.extension().string())).string();
}

std::string dump_path_of(const ReplayOptions& options, const scenario::Scenario& run, std::size_t runs) {
  return with_suffix(options.dump, runs > 1 ? expansion_suffix(run.name) : "");
}

/// Whatever the runs would write is checked before the first one starts.
void check_outputs(const ReplayOptions& options, const std::vector<scenario::Scenario>& runs) {
  io::OutputPaths paths;
  paths.reads(options.resume);
  if (!options.against.empty() && std::filesystem::exists(options.against)) paths.reads(options.against);
  for (const scenario::Scenario& run : runs) {
    paths.reads(run.file);
    paths.reads(run.hidden_path);
    paths.reads(run.model.config_path);
    for (const std::string& weights : run.weights_paths) paths.reads(weights);
  }
  if (!options.dump.empty()) {
    for (const scenario::Scenario& run : runs)
      paths.writes(dump_path_of(options, run, runs.size()), io::OutputKind::hdf5);
  }
  for (const auto& [step, file] : parse_checkpoints(options.checkpoints))
    paths.writes(file, io::OutputKind::hdf5);
}

int run(const ReplayOptions& options, const Shared& shared) {
  if (options.scenario.empty() && options.resume.empty())
    throw UsageError("replay: a scenario or --resume is needed");
  apply(options.compute);
  check_engine_name(options.engine);
  if (!options.inject.empty())
    oracle::faults::parse_injection(options.inject);  // refused before anything runs
  check_engine_options(options.compute.engine, {options.engine, options.against});
  if (options.against.empty() &&
      (!options.against_profile.empty() || !options.rules.empty() || !options.rule_overrides.empty()))
    throw UsageError(
        "replay: --against-profile, --rules and --rule are for a comparison, which needs --against");
  const std::vector<scenario::Scenario> runs = scenarios_of(options);
  check_outputs(options, runs);
  const std::unique_ptr<report::Reporter> reporter =
      shared.json ? report::json_reporter(std::cout)
                  : report::text_reporter(std::cout, {.verbose = options.verbose});
  int code = kDone;
  for (const scenario::Scenario& one : runs) {
    if (options.check) {
      scenario::Scenario checked = one;
      checked.profile = side_profile(one.profile, options.profile, options.axes);
      if (options.seed) checked.seed = *options.seed;
      if (options.model_kernels) require_kernel_models(checked.profile);
      const RunPlan plan = scenario::plan(checked);
      const oracle::Selection selection =
          oracle::parse_selection(options.stages, options.tensors, options.steps);
      oracle::require_match(selection, plan.config.layers, 0, static_cast<std::int64_t>(plan.steps.size()));
      const bool covered = print_plan(checked, plan, selection, shared.json);
      code = worse(code, covered ? kDone : kFailed);
      continue;
    }
    if (runs.size() > 1 && !shared.json) fmt::print("{}\n", one.name), std::fflush(stdout);
    const int one_code = replay_run(one, options, shared, *reporter, dump_path_of(options, one, runs.size()));
    code = worse(code, one_code);
    if (code == kInterrupted) break;
  }
  return code;
}

void add_output_options(CLI::App& command, ReplayOptions& options) {
  command.add_option("--dump", options.dump, "Write the tensors of the run")->type_name("OUT.h5");
  command.add_flag("!--no-compress", options.compress, "Store without gzip");
  command.add_option("--max-dump", options.max_dump, "Refuse a larger dump")
      ->type_name("SIZE")
      ->capture_default_str();
  command.add_flag("--stats", options.stats, "Range, saturation and non-finite figures of every tensor");
  command.add_flag("--verbose", options.verbose, "A line for every tensor that was compared");
}

}  // namespace

std::vector<scenario::Scenario> scenarios_of(const ReplayOptions& options) {
  scenario::Scenario loaded;
  if (options.scenario.empty()) {
    const oracle::CheckpointInfo checkpoint = oracle::read_checkpoint(options.resume);
    loaded = scenario::parse_scenario(checkpoint.scenario, checkpoint.scenario_file);
  } else {
    loaded = scenario::load_scenario(find_scenario(options.scenario));
  }
  std::vector<scenario::Scenario> runs = scenario::expand(loaded);
  if (!options.only.empty()) {
    std::erase_if(runs, [&](const scenario::Scenario& run) {
      return run.name.find(options.only) == std::string::npos;
    });
    if (runs.empty())
      throw UsageError("no run of " + options.scenario + " has '" + options.only + "' in its name");
  }
  if (runs.size() > 1 && (!options.resume.empty() || !options.checkpoints.empty())) {
    throw UsageError(options.scenario + ": checkpoints need one run; choose one of the sweep with --only");
  }
  if (!options.model.empty()) {
    // A checkpoint knows its run by the scenario's text, which does not name this geometry.
    if (!options.resume.empty() || !options.checkpoints.empty())
      throw UsageError("--model goes with neither --checkpoint nor --resume");
    for (scenario::Scenario& run : runs) run.model.geometry = geometry_preset(options.model);
  }
  return runs;
}

void add_run_options(CLI::App& command, ReplayOptions& options) {
  command.add_option("--engine", options.engine, "Engine to run: reference, wide or cuda")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option("--model", options.model, "Geometry of a preset instead of the scenario's: v4-flash ...")
      ->type_name("PRESET");
  command.add_option("--profile", options.profile, "Numeric profile instead of the scenario's")
      ->type_name("NAME");
  command.add_option("--set", options.axes, "Replace one axis of the profile")->type_name("AXIS=VALUE");
  command.add_option("--seed", options.seed, "Seed instead of the scenario's")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--only", options.only, "Of a sweep: runs whose name holds this text, for example 'n=3'")
      ->type_name("TEXT");
  command.add_flag(
      "--model-kernels", options.model_kernels,
      "Stages by models of the profile's production kernels: vllm-*, sglang-* (see: list kernels)");
}

void add_comparison_options(CLI::App& command, ReplayOptions& options) {
  command.add_option("--against", options.against, "Compare with another engine or with a dump")
      ->type_name("ENGINE|FILE.h5");
  command.add_option("--against-profile", options.against_profile, "Profile of the engine compared with")
      ->type_name("NAME");
  command
      .add_option("--rules", options.rules,
                  "bits: only equal passes; values: rounding differences pass; hopper-exact: as values, but "
                  "bits of what --model-kernels computed from the same inputs")
      ->check(CLI::IsMember({"bits", "values", "hopper-exact"}));
  command.add_option("--rule", options.rule_overrides, "Rule of some tensors, for example 'q.up/.*=ulp:1'")
      ->type_name("REGEX=RULE");
  command.add_option("--inject", options.inject, "Put a fault into the engine (see: list faults)")
      ->type_name("NAME[:key=value,...]");
}

void add_selection_options(CLI::App& command, ReplayOptions& options) {
  command.add_option("--stages", options.stages, "Only these stages, for example 'compress.*,kv.window'")
      ->type_name("GLOBS");
  command.add_option("--tensors", options.tensors, "Only these tensors; 'state' adds whole caches")
      ->type_name("GLOBS");
  command.add_option("--steps", options.steps, "Only these steps: FIRST:END, half-open, from 0")
      ->type_name("A:B");
}

std::map<std::int64_t, std::string> parse_checkpoints(const std::vector<std::string>& texts) {
  std::map<std::int64_t, std::string> checkpoints;
  for (const std::string& text : texts) {
    std::int64_t step = -1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, step);
    if (error != std::errc() || stop == end || *stop != ':' || stop + 1 == end || step < 0) {
      throw UsageError("--checkpoint '" + text + "': expected STEP:FILE");
    }
    if (!checkpoints.emplace(step, std::string(stop + 1, end)).second) {
      throw UsageError(fmt::format("--checkpoint '{}': step {} is named twice", text, step));
    }
  }
  return checkpoints;
}

Profile side_profile(const Profile& own, const std::string& name, const std::vector<std::string>& axes) {
  Profile profile = name.empty() ? own : profile_named(name);
  for (const std::string& text : axes) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) throw UsageError("--set '" + text + "': expected AXIS=VALUE");
    profile.set(text.substr(0, equals), text.substr(equals + 1));
  }
  return profile;
}

void add_replay(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* const command =
      app.add_subcommand("replay", "Run a scenario; dump it, compare it with another engine");
  command->footer(kFooter);
  command->add_option("scenario", options->scenario, "Scenario file (YAML)")->type_name("SCENARIO");
  add_run_options(*command, *options);
  command->add_flag("--check", options->check, "Print the plan, run nothing");
  add_comparison_options(*command, *options);
  command
      ->add_option(
          "--feed", options->feed,
          "independent: each side has its own state; reference: every stage gets the same inputs and state")
      ->check(CLI::IsMember({"independent", "reference"}))
      ->capture_default_str();
  command->add_flag("--continue", options->keep_going, "Go on after the first difference");
  add_selection_options(*command, *options);
  add_output_options(*command, *options);
  command->add_flag_callback(
      "--check-writes", [options] { options->check_writes = true; },
      "Check after every step that nothing else was written (default when caches are small)");
  command->add_flag_callback(
      "--no-check-writes", [options] { options->check_writes = false; }, "Do not");
  command->add_flag(
      "!--no-check-lifetimes", options->check_lifetimes,
      "Do not check what every step reads, writes and leaves behind against a shadow of the caches");
  command->add_flag("--times", options->times,
                    "Say where the time went: stages, tensors, states, checks, comparing");
  command->add_flag("--stop-on-nonfinite", options->stop_on_nonfinite, "Fail at the first inf or NaN");
  command->add_flag("!--no-expect", options->expect, "Ignore the scenario's expectations");
  command->add_option("--checkpoint", options->checkpoints, "Write the state after a step")
      ->type_name("STEP:FILE");
  command->add_option("--resume", options->resume, "Continue from a checkpoint")->type_name("FILE");
  add_compute_options(*command, options->compute);
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
