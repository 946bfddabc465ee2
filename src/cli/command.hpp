/// What every command of the program is made of: options on a CLI11 subcommand and the action to run.
///
/// Results go to stdout, progress and remarks to stderr. An action returns an exit code (exit_code.hpp) or
/// throws; main maps errors in one place.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/engines.hpp"

namespace dsv4::cli {

/// Options before the command.
struct Shared {
  bool json = false;                   ///< JSON Lines where a person would read text
  bool quiet = false;                  ///< no progress
  std::vector<std::string> arguments;  ///< of the whole command line, for commands that reproduce something
};

using Action = std::function<int()>;

/// Each adds its subcommand; `action` is set when the subcommand was chosen.
void add_replay(CLI::App& app, Shared& shared, Action& action);
void add_diff(CLI::App& app, Shared& shared, Action& action);
void add_check(CLI::App& app, Shared& shared, Action& action);
void add_golden(CLI::App& app, Shared& shared, Action& action);
void add_recorded(CLI::App& app, Shared& shared, Action& action);
void add_inspect(CLI::App& app, Shared& shared, Action& action);
void add_import_trace(CLI::App& app, Shared& shared, Action& action);
void add_list(CLI::App& app, Shared& shared, Action& action);
void add_bench(CLI::App& app, Shared& shared, Action& action);
void add_probe(CLI::App& app, Shared& shared, Action& action);
void add_shrink(CLI::App& app, Shared& shared, Action& action);
void add_fuzz(CLI::App& app, Shared& shared, Action& action);
void add_explain(CLI::App& app, Shared& shared, Action& action);

/// `--threads`, `--isa`, `--device` and `--graph` of commands that compute.
struct ComputeOptions {
  int threads = 0;  ///< 0: all
  std::string isa;  ///< empty: the best one
  EngineOptions engine;
};
void add_compute_options(CLI::App& command, ComputeOptions& options);
void apply(const ComputeOptions& options);

/// "512M", "4G", "100000" -> bytes; throws UsageError.
std::int64_t parse_size(const std::string& text);
/// "1.3 GiB"
std::string size_text(std::int64_t bytes);
/// A shell word, quoted where needed.
std::string shell_quoted(const std::string& word);

}  // namespace dsv4::cli
