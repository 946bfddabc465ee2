#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "cli/save_shrunk.hpp"
#include "io/atomic_file.hpp"
#include "io/output_path.hpp"
#include "model/error.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"
#include "scenario/coverage.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter =
    R"(Every scenario runs on every pair. Scenario number i depends on --seed and i alone: --first i --count 1 runs it again.
Exit code 1: a divergence was found; its smallest scenario lies in --out.

Examples:
  dsv4-oracle fuzz --seed 7 --count 200
  dsv4-oracle fuzz --seed 7 --time 600 --pair ring:paged
  dsv4-oracle fuzz --pair reference:cuda --time 300 --out failures/)";

struct Options {
  oracle::FuzzOptions fuzz;
  std::vector<std::string> pairs;
  std::optional<std::uint64_t> count;
  std::optional<double> seconds;
  std::string engine = "reference";
  std::string inject;
  bool model_kernels = false;
  std::string folder = "fuzz-failures";
  ComputeOptions compute;
};

/// Why an engine cannot run here; empty if it can.
std::string missing(const std::string& engine) {
  try {
    check_engine_name(engine);
    if (engine == "cuda" && device_names().empty()) return "there is no CUDA device";
    return {};
  } catch (const SubjectError& error) {
    return error.what();
  }
}

std::vector<oracle::TrialPair> pairs_of(const Options& options) {
  std::vector<oracle::TrialPair> pairs;
  for (const std::string& text : options.pairs) {
    const oracle::TrialPair pair = oracle::trial_pair(text, options.engine);
    if (options.model_kernels) check_model_kernels(pair);
    std::string fault = missing(pair.subject.engine);
    if (fault.empty() && !pair.sequential) fault = missing(pair.reference.engine);
    if (fault.empty())
      pairs.push_back(pair);
    else
      fmt::print(stderr, "pair {} is skipped: {}\n", text, fault);
  }
  if (pairs.empty()) throw SubjectError("fuzz: no pair can run here");
  return pairs;
}

/// Saves a failure; returns the file.
std::string save(const oracle::FuzzFailure& failure, const oracle::TrialPair& pair, const Options& options) {
  std::string file = failure.pair;
  std::ranges::replace(file, ':', '-');
  std::filesystem::create_directories(options.folder);
  file = (std::filesystem::path(options.folder) / (failure.scenario.name + "-" + file + ".yaml")).string();
  const std::string again = fmt::format("fuzz --seed {} --first {} --count 1 --pair {}", options.fuzz.seed,
                                        failure.index, failure.pair);
  std::string inject = options.inject.empty() ? "" : " --inject " + shell_quoted(options.inject);
  if (options.model_kernels) inject += " --model-kernels";
  io::AtomicFile out(file);
  out.write(saved_text(failure.smallest, pair, file, again + inject, inject));
  out.finish();
  return file;
}

void print_failure(const oracle::FuzzFailure& failure, const std::string& file, bool json) {
  const oracle::ShrunkFailure& small = failure.smallest;
  if (json) {
    print_json_line({{"type", "fuzz_failure"},
                     {"scenario", failure.scenario.name},
                     {"index", failure.index},
                     {"pair", failure.pair},
                     {"stage", failure.divergence.stage},
                     {"tensor", failure.divergence.tensor},
                     {"kind", failure.divergence.kind},
                     {"sentence", failure.divergence.sentence},
                     {"from", size_of(failure.scenario)},
                     {"to", size_of(small.shrunk.scenario)},
                     {"smallest", small.shrunk.at_fixpoint},
                     {"file", file}});
  } else {
    fmt::print("{} on {}: {}: {}\n  {} -> {}: {}\n", failure.scenario.name, failure.pair,
               failure.divergence.signature(), small.divergence.sentence, size_of(failure.scenario),
               size_of(small.shrunk.scenario), file);
  }
  std::fflush(stdout);
}

void print_report(const oracle::FuzzReport& report, bool json) {
  std::vector<std::string> missed;
  std::size_t all = 0;
  for (const scenario::CoverageFact& fact : scenario::coverage_catalogue()) {
    if (fact.seen == scenario::Seen::fault) continue;  // of wrong runs alone
    ++all;
    if (!report.facts.contains(std::string(fact.name))) missed.emplace_back(fact.name);
  }
  const double rate = report.seconds > 0 ? static_cast<double>(report.scenarios) / report.seconds : 0;
  if (json) {
    nlohmann::ordered_json pairs = nlohmann::ordered_json::object();
    for (const auto& [pair, compared] : report.compared) pairs[pair] = compared;
    nlohmann::ordered_json refused = nlohmann::ordered_json::object();
    for (const auto& [pair, reasons] : report.refused) refused[pair] = reasons;
    print_json_line({{"type", "fuzz"},
                     {"scenarios", report.scenarios},
                     {"seconds", report.seconds},
                     {"rate", rate},
                     {"diverged", report.diverged},
                     {"compared", pairs},
                     {"refused", refused},
                     {"covered", all - missed.size()},
                     {"facts", all},
                     {"not_covered", missed}});
    return;
  }
  fmt::print("{} scenarios in {:.1f} s, {:.2f} a second, {} diverged\n", report.scenarios, report.seconds,
             rate, report.diverged);
  for (const auto& [pair, compared] : report.compared) {
    fmt::print("  {:<22} {} tensors and states compared", pair, compared);
    const auto refused = report.refused.find(pair);
    if (refused != report.refused.end())
      fmt::print(", {} scenarios refused, {}", refused->second.size(), refused->second.front());
    fmt::print("\n");
  }
  fmt::print("coverage {} of {}{}{}\n", all - missed.size(), all,
             missed.empty() ? "" : "; not reached: ", fmt::join(missed, ", "));
}

int run(Options options, const Shared& shared) {
  apply(options.compute);
  if (options.pairs.empty()) {
    options.pairs = {"ring:paged", "ring:page4align", "sequential", "reference:wide", "reference:cuda"};
    if (options.model_kernels) options.pairs = {"ring:paged", "ring:page4align", "reference:wide"};
  }
  const std::vector<oracle::TrialPair> pairs = pairs_of(options);
  io::OutputPaths::writes_folder(options.folder);
  if (options.count || !options.seconds) options.fuzz.count = options.count.value_or(100);
  if (options.seconds) options.fuzz.seconds = *options.seconds;

  oracle::FuzzReport report;
  {
    oracle::Progress progress(
        "fuzz", options.count || !options.seconds ? static_cast<std::int64_t>(options.fuzz.count) : 0,
        "scenarios", !shared.quiet);
    oracle::FuzzEvents events;
    events.failed = [&](const oracle::FuzzFailure& failure) {
      const auto pair = std::ranges::find(pairs, failure.pair, &oracle::TrialPair::name);
      print_failure(failure, save(failure, *pair, options), shared.json);
    };
    events.progress = [&](const oracle::FuzzReport& so_far) {
      progress.advance(1, fmt::format("{} diverged, {} facts", so_far.diverged, so_far.facts.size()));
    };
    report = oracle::fuzz(options.fuzz, pairs,
                          trial_tools(options.compute, options.inject, options.model_kernels), events);
  }
  print_report(report, shared.json);
  if (report.interrupted) return kInterrupted;
  if (report.diverged > 0) return kFailed;
  const bool compared =
      std::ranges::any_of(report.compared, [](const auto& pair) { return pair.second > 0; });
  return compared ? kDone : kUsage;
}

}  // namespace

void add_fuzz(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand(
      "fuzz", "Random scenarios on pairs of engines and cache forms; failures are shrunk and saved");
  command->footer(kFooter);
  command->add_option("--seed", options->fuzz.seed, "Which scenarios")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--first", options->fuzz.first, "Number of the first scenario")
      ->type_name("I")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--count", options->count, "How many; 100 without --time")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--time", options->seconds, "Start no scenario after so many seconds")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  command
      ->add_option(
          "--pair", options->pairs,
          "A:B of engines or cache forms (ring, paged, page4align), or sequential; several may be given")
      ->type_name("PAIR");
  command->add_option("--engine", options->engine, "Engine of cache forms and of sequential")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--inject", options->inject, "Put a fault into the engine under test (see: list faults)")
      ->type_name("NAME[:key=value,...]");
  command->add_flag(
      "--model-kernels", options->model_kernels,
      "Stages by models of production kernels, in scenarios whose profile has some (see: list kernels)");
  command->add_option("--out", options->folder, "Folder for failures")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--shrink-time", options->fuzz.shrink_seconds, "Seconds to shrink one failure")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--max-failures", options->fuzz.most_failures, "End after so many different ones")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_compute_options(*command, options->compute);
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
