/// What `replay` was asked to do, and the run of one scenario (a sweep runs every expansion).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "model/profile.hpp"
#include "oracle/lockstep.hpp"
#include "oracle/selection.hpp"
#include "report/reporter.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::cli {

struct ReplayOptions {
  std::string scenario;
  std::string only;  ///< of a sweep: expansions whose name holds this text
  std::string engine = "reference";
  std::string inject;   ///< fault of the engine, "NAME[:key=value,...]"; empty: none
  std::string against;  ///< engine name or dump; empty: nothing is compared
  std::string model;    ///< preset whose geometry replaces the scenario's; empty: the scenario's
  std::string profile;  ///< empty: the scenario's
  std::string against_profile;
  std::vector<std::string> axes;  ///< "axis=value"
  bool model_kernels = false;     ///< the subject's stages by models of its profile's kernels
  std::optional<std::uint64_t> seed;
  std::string feed = "independent";
  std::vector<std::string> stages;
  std::vector<std::string> tensors;
  std::string steps;
  std::string dump;
  bool compress = true;
  std::string max_dump = "4G";
  bool keep_going = false;
  bool check = false;
  std::optional<bool> check_writes;  ///< empty: when the caches are small
  bool check_lifetimes = true;
  std::string rules;                 ///< empty: by the engines
  std::vector<std::string> rule_overrides;
  bool stop_on_nonfinite = false;
  bool times = false;
  bool stats = false;
  bool verbose = false;
  bool expect = true;
  std::vector<std::string> checkpoints;  ///< "STEP:FILE"
  std::string resume;
  ComputeOptions compute;
};

/// Options that `replay` shares with other commands: what runs, what it is compared with, what of it.
void add_run_options(CLI::App& command, ReplayOptions& options);
void add_comparison_options(CLI::App& command, ReplayOptions& options);
void add_selection_options(CLI::App& command, ReplayOptions& options);

/// The runs that the options name: of a sweep those of `--only`, with the geometry of `--model`.
std::vector<scenario::Scenario> scenarios_of(const ReplayOptions& options);

/// Runs one scenario that has no sweep; returns an exit code.
int replay_run(const scenario::Scenario& scenario, const ReplayOptions& options, const Shared& shared,
               report::Reporter& reporter, const std::string& dump_path);

/// `--checkpoint` as files by step; throws UsageError.
std::map<std::int64_t, std::string> parse_checkpoints(const std::vector<std::string>& texts);

/// Profile of a side: `name` (empty: the scenario's own) with the axes replaced.
Profile side_profile(const Profile& own, const std::string& name, const std::vector<std::string>& axes);

/// `replay --check`: the step table, what running would cost, and expected coverage as far as the plan tells.
/// False if the plan misses an expected fact.
bool print_plan(const scenario::Scenario& scenario, const RunPlan& plan, const oracle::Selection& selection,
                bool json);

}  // namespace dsv4::cli
