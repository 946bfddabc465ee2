/// `recorded`: what an engine produced on a machine, kept as digests, and the check against them elsewhere.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/command.hpp"
#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"
#include "oracle/recorded/record_file.hpp"

namespace dsv4::cli {
namespace {
namespace recorded = oracle::recorded;
namespace fs = std::filesystem;

constexpr const char* kFooter = R"(Examples:
  dsv4-oracle recorded list                                       what data/recorded/h200 holds, and where it is from
  dsv4-oracle recorded verify                                     the reference against it: every step of every scenario
  dsv4-oracle recorded verify rewind                              one scenario
  dsv4-oracle recorded generate --engine cuda --data data/recorded/h200 --detail mixed-batch --about driver=580.1

verify fails for a step whose digest differs, and for stale records: a scenario or a run that the record lacks, one
whose plan has changed since, one that no longer exists.)";

struct RecordedOptions {
  std::string folder;
  std::vector<std::string> scenarios;
  std::string engine = "reference";
  std::vector<std::string> detailed;  ///< scenarios of which every line is kept
  std::vector<std::string> about;     ///< "key=value"
  ComputeOptions compute;
};

/// A scenario's file with its runs.
struct Script {
  std::string file;
  std::string stem;
  std::vector<recorded::Run> runs;
};

std::vector<Script> scripts_of(const RecordedOptions& options) {
  std::vector<std::string> files;
  for (const std::string& name : options.scenarios) files.push_back(find_scenario(name));
  if (options.scenarios.empty()) files = own_scenarios();
  if (files.empty()) throw FileError(scenario_folder() + ": holds no scenario");
  std::vector<Script> scripts;
  for (const std::string& file : files) {
    scripts.push_back(
        {file, fs::path(file).stem().string(), recorded::runs_of(scenario::load_scenario(file))});
  }
  return scripts;
}

std::string folder_of(const RecordedOptions& options) {
  return options.folder.empty() ? recorded_folder() : options.folder;
}

/// Calls `work(script, run)` for every run. Runs on the CPU are independent, so they share out the threads; a
/// device works on one at a time. False when interrupted; the first error in order is thrown.
template <class Work>
bool for_each_run(const RecordedOptions& options, const Shared& shared, const std::vector<Script>& scripts,
                  Work work) {
  struct Place {
    std::size_t script;
    std::size_t run;
  };
  std::vector<Place> places;
  for (std::size_t s = 0; s < scripts.size(); ++s) {
    for (std::size_t r = 0; r < scripts[s].runs.size(); ++r) places.push_back({s, r});
  }
  const auto count = static_cast<std::int64_t>(places.size());
  std::vector<std::exception_ptr> errors(places.size());
  std::atomic<bool> stop = false;
  oracle::Progress progress("recorded", count, "runs", !shared.quiet);
#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(options.engine == "cuda" ? 1 : omp_get_max_threads())
  for (std::int64_t i = 0; i < count; ++i) {
    if (stop) continue;
    const auto at = static_cast<std::size_t>(i);
    try {
      work(places[at].script, places[at].run);
    } catch (...) {
      errors[at] = std::current_exception();
      stop = true;
    }
    if (oracle::interrupted()) stop = true;
#pragma omp critical(recorded_progress)
    progress.advance(1, scripts[places[at].script].stem);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return !oracle::interrupted();
}

std::vector<std::pair<std::string, std::string>> about_lines(const RecordedOptions& options,
                                                             const EngineInfo& engine) {
  std::vector<std::pair<std::string, std::string>> about{{"engine", engine.name}, {"device", engine.device}};
  for (const std::string& text : options.about) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (equals == std::string::npos || key.empty() || key.find_first_of(" \n") != std::string::npos ||
        text.find('\n') != std::string::npos)
      throw UsageError("--about '" + text + "': expected KEY=VALUE on one line");
    about.emplace_back(key, text.substr(equals + 1));
  }
  return about;
}

int generate(const RecordedOptions& options, const Shared& shared) {
  apply(options.compute);
  check_engine_name(options.engine);
  check_engine_options(options.compute.engine, {options.engine});
  const std::vector<Script> scripts = scripts_of(options);
  for (const std::string& name : options.detailed) {
    if (std::ranges::none_of(scripts, [&](const Script& script) { return script.stem == name; }))
      throw UsageError("--detail " + name + ": is none of the scenarios to record");
  }
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw FileError(options.folder + ": cannot create the folder: " + error.message());

  std::vector<std::vector<recorded::RunRecord>> records;
  for (const Script& script : scripts) records.emplace_back(script.runs.size());
  EngineInfo engine;
  const bool whole = for_each_run(options, shared, scripts, [&](std::size_t s, std::size_t r) {
    EngineInfo info;
    records[s][r] =
        recorded::computed(scripts[s].runs[r], options.engine, engine_factory(options.compute.engine), &info);
#pragma omp critical(recorded_engine)
    engine = info;
  });
  if (!whole) return kInterrupted;
  std::int64_t total = 0;
  for (std::size_t s = 0; s < scripts.size(); ++s) {
    const bool detailed = std::ranges::find(options.detailed, scripts[s].stem) != options.detailed.end();
    const std::string path = recorded::record_path(options.folder, scripts[s].file);
    const std::int64_t bytes =
        recorded::write_record(path, {about_lines(options, engine), std::move(records[s])}, detailed);
    total += bytes;
    if (shared.json) {
      print_json_line({{"type", "recorded_scenario"},
                       {"scenario", scripts[s].stem},
                       {"runs", scripts[s].runs.size()},
                       {"bytes", bytes}});
    } else {
      fmt::print("{:<28} {:>4} runs {:>10}\n", scripts[s].stem, scripts[s].runs.size(), size_text(bytes));
    }
  }
  if (!shared.json) fmt::print("{} in {}\n", size_text(total), options.folder);
  return kDone;
}

/// What verifying found out about one run.
struct RunResult {
  std::string stale;  ///< why nothing was compared; empty: compared
  std::size_t steps = 0;
  std::vector<recorded::StepMismatch> mismatches;
};

RunResult verify_run(const recorded::Run& run, const recorded::RecordFile* record,
                     const RecordedOptions& options) {
  const recorded::RunRecord* const stored =
      record == nullptr ? nullptr : record->find(run.name, run.profile());
  if (stored == nullptr) return {"not recorded", 0, {}};
  if (stored->plan != recorded::planned(run).plan)
    return {"its plan has changed since it was recorded", 0, {}};
  const recorded::RunRecord found =
      recorded::computed(run, options.engine, engine_factory(options.compute.engine));
  return {"", found.steps.size(), recorded::compare(*stored, found)};
}

/// Prints as it counts.
class Verdict {
 public:
  Verdict(const RecordedOptions& options, bool json) : options_(options), json_(json) {}

  void stale(const std::string& scenario, const std::string& run, const std::string& why) {
    ++stale_;
    if (json_) {
      print_json_line({{"type", "recorded_stale"}, {"scenario", scenario}, {"run", run}, {"reason", why}});
    } else {
      fmt::print("stale: {}: {}\n", run.empty() ? scenario : run, why);
    }
  }

  void add(const Script& script, const recorded::Run& run, const RunResult& result) {
    const std::string title = run.name + " " + run.profile();
    if (!result.stale.empty()) return stale(script.stem, title, result.stale);
    ++runs_;
    steps_ += result.steps;
    differing_ += result.mismatches.size();
    if (result.mismatches.empty()) return;
    const recorded::StepMismatch& first = result.mismatches.front();
    const std::string command = closer(script, run, first.step);
    if (json_) {
      nlohmann::ordered_json lines = nlohmann::ordered_json::array();
      for (const auto& line : first.lines) {
        lines.push_back({{"place", line.place}, {"recorded", line.recorded}, {"found", line.found}});
      }
      print_json_line({{"type", "recorded_mismatch"},
                       {"scenario", script.stem},
                       {"run", run.name},
                       {"profile", run.profile()},
                       {"step", first.step},
                       {"recorded", first.recorded},
                       {"found", first.found},
                       {"lines", lines},
                       {"steps_differing", result.mismatches.size()},
                       {"reproduce", command}});
      return;
    }
    constexpr std::size_t kShown = 5;  // the first lines say where to look
    fmt::print("DIFFERS: {}: {} of {} steps, first step {}: recorded {}, found {}\n", title,
               result.mismatches.size(), result.steps, first.step, first.recorded, first.found);
    for (std::size_t i = 0; i < std::min(kShown, first.lines.size()); ++i) {
      const auto& line = first.lines[i];
      fmt::print("  {}: recorded {}, found {}\n", line.place, line.recorded, line.found);
    }
    fmt::print("  look closer where the recorded engine runs: {}\n", command);
  }

  int finish() const {
    if (json_) {
      print_json_line({{"type", "recorded_summary"},
                       {"runs", runs_},
                       {"steps", steps_},
                       {"steps_differing", differing_},
                       {"stale", stale_}});
    } else {
      fmt::print("{} steps of {} runs compared, {} differ, {} stale\n", steps_, runs_, differing_, stale_);
    }
    return differing_ + stale_ == 0 && steps_ > 0 ? kDone : kFailed;
  }

  void engine_recorded(const std::string& name) {
    if (engine_.empty()) engine_ = name;
  }

 private:
  std::string closer(const Script& script, const recorded::Run& run, std::int64_t step) const {
    std::string command = "dsv4-oracle replay " + shell_quoted(script.file);
    if (!run.scenario.profile_given) command += " --profile " + run.profile();
    if (run.name.ends_with(']')) command += " --only " + shell_quoted(run.name.substr(run.name.rfind('[')));
    return command +
           fmt::format(" --engine {} --against {} --steps {}:{}", engine_, options_.engine, step, step + 1);
  }

  const RecordedOptions& options_;
  bool json_;
  std::string engine_;
  std::size_t runs_ = 0;
  std::size_t steps_ = 0;
  std::size_t differing_ = 0;
  std::size_t stale_ = 0;
};

/// Records of the folder by scenario.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == recorded::kExtension)
      files[entry.path().stem().string()] = entry.path().string();
  }
  if (error) throw FileError(folder + ": cannot be read: " + error.message());
  if (files.empty()) throw FileError(folder + ": holds no record");
  return files;
}

int verify(const RecordedOptions& options, const Shared& shared) {
  apply(options.compute);
  check_engine_name(options.engine);
  check_engine_options(options.compute.engine, {options.engine});
  const std::map<std::string, std::string> files = files_in(folder_of(options));
  const std::vector<Script> scripts = scripts_of(options);
  std::map<std::string, recorded::RecordFile> records;
  for (const auto& [stem, path] : files) records.emplace(stem, recorded::read_record(path));

  std::vector<std::vector<RunResult>> results;
  for (const Script& script : scripts) results.emplace_back(script.runs.size());
  const bool whole = for_each_run(options, shared, scripts, [&](std::size_t s, std::size_t r) {
    const auto record = records.find(scripts[s].stem);
    results[s][r] =
        verify_run(scripts[s].runs[r], record == records.end() ? nullptr : &record->second, options);
  });
  if (!whole) return kInterrupted;

  Verdict verdict(options, shared.json);
  verdict.engine_recorded(records.begin()->second.said("engine"));
  for (std::size_t s = 0; s < scripts.size(); ++s) {
    for (std::size_t r = 0; r < scripts[s].runs.size(); ++r)
      verdict.add(scripts[s], scripts[s].runs[r], results[s][r]);
    const auto record = records.find(scripts[s].stem);
    if (record == records.end()) continue;
    for (const recorded::RunRecord& stored : record->second.runs) {
      const bool exists = std::ranges::any_of(scripts[s].runs, [&](const recorded::Run& run) {
        return run.name == stored.name && run.profile() == stored.profile;
      });
      if (!exists)
        verdict.stale(scripts[s].stem, stored.name + " " + stored.profile, "recorded, but no run any more");
    }
    records.erase(record);
  }
  if (options.scenarios.empty()) {
    for (const auto& [stem, record] : records)
      verdict.stale(stem, "", "recorded in " + files.at(stem) + ", but no scenario any more");
  }
  return verdict.finish();
}

int list(const RecordedOptions& options, const Shared& shared) {
  if (!shared.json) fmt::print("{:<28} {:>5} {:>6} {:>10}  from\n", "scenario", "runs", "steps", "size");
  std::int64_t total = 0;
  for (const auto& [stem, path] : files_in(folder_of(options))) {
    const recorded::RecordFile record = recorded::read_record(path);
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
    total += bytes;
    std::size_t steps = 0;
    for (const recorded::RunRecord& run : record.runs) steps += run.steps.size();
    if (shared.json) {
      nlohmann::ordered_json about;
      for (const auto& [key, value] : record.about) about[key] = value;
      print_json_line({{"type", "recorded_scenario"},
                       {"scenario", stem},
                       {"runs", record.runs.size()},
                       {"steps", steps},
                       {"bytes", bytes},
                       {"about", about}});
      continue;
    }
    std::string from;
    for (const auto& [key, value] : record.about) from += (from.empty() ? "" : ", ") + key + " " + value;
    fmt::print("{:<28} {:>5} {:>6} {:>10}  {}\n", stem, record.runs.size(), steps, size_text(bytes), from);
  }
  if (!shared.json) fmt::print("{} in {}\n", size_text(total), folder_of(options));
  return kDone;
}

}  // namespace

void add_recorded(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<RecordedOptions>();
  CLI::App* const command =
      app.add_subcommand("recorded", "Digests of what an engine produced on a machine that is not here");
  command->footer(kFooter);
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* text,
                       int (*run)(const RecordedOptions&, const Shared&)) {
    CLI::App* const sub = command->add_subcommand(name, text);
    sub->callback([options, &shared, &action, run] {
      action = [options, &shared, run] { return run(*options, shared); };
    });
    return sub;
  };
  CLI::App* const generate_command = add("generate", "Run scenarios and write their records", generate);
  CLI::App* const verify_command = add("verify", "Run scenarios and compare with their records", verify);
  CLI::App* const list_command = add("list", "Records of a folder and where they are from", list);
  for (CLI::App* const sub : {generate_command, verify_command}) {
    sub->add_option("scenarios", options->scenarios, "Scenarios; all of the program's own without it")
        ->type_name("SCENARIO");
    sub->add_option("--engine", options->engine, "Engine that computes")
        ->type_name("NAME")
        ->capture_default_str();
    add_compute_options(*sub, options->compute);
  }
  generate_command->add_option("--data", options->folder, "Folder to write to")->type_name("DIR")->required();
  for (CLI::App* const sub : {verify_command, list_command}) {
    sub->add_option("--data", options->folder, "Folder of the records; the program's own without it")
        ->type_name("DIR");
  }
  generate_command
      ->add_option("--detail", options->detailed, "Keep the digest of every tensor of these scenarios")
      ->type_name("SCENARIO");
  generate_command->add_option("--about", options->about, "A line about the machine or the build")
      ->type_name("KEY=VALUE");
}

}  // namespace dsv4::cli
