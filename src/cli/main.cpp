#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "arith/environment.hpp"
#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/nearest.hpp"
#include "cli/version.hpp"
#include "model/error.hpp"
#include "oracle/interrupt.hpp"

namespace {

using namespace dsv4;

constexpr const char* kFooter = R"(Results go to stdout, progress and remarks to stderr.

Examples:
  dsv4-oracle list scenarios
  dsv4-oracle replay scenarios/mixed-batch.yaml --against wide --feed reference
  dsv4-oracle replay run.yaml --dump run.h5 --stages 'compress.*' --steps 10:20
  dsv4-oracle diff run.h5 other.h5
  dsv4-oracle explain other.h5
  dsv4-oracle golden export --format safetensors --output vectors/
  dsv4-oracle check vectors/ --with results/

Exit codes: 0 done, nothing differs; 1 a comparison or an expectation failed; 2 usage, scenario content, or nothing
matched; 3 a file could not be read, written or trusted; 4 the subject could not run; 5 internal error;
130 interrupted (the step in progress is finished, the dump kept as .partial).)";

/// Threads that spin between small steps take the cores from each other and from neighbours: up to 14 times
/// slower on a busy machine. The OpenMP library reads its policy when it is loaded, so the program starts
/// itself once more.
void start_with_passive_threads(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);  // returns only if it fails, which costs speed alone
}

/// A library that was loaded with fast-math start-up code, or a preloaded one, may have told the processor to
/// flush subnormals or to round another way: for the whole process, and without a trace in the results but
/// other bits. Threads inherit what the first one has.
void require_strict_environment() {
  if (arith::environment_is_strict()) return;
  throw InternalError(
      "the floating-point environment is not IEEE: subnormals are flushed or rounding is not to nearest; a "
      "library that is loaded into this process has changed it (look at LD_PRELOAD)");
}

/// Everything that was printed has arrived, or a message on stderr says that it has not: a report that a full
/// disk or a closed pipe swallowed is no success.
int finish_stdout(int code) {
  const bool streams = static_cast<bool>(std::cout.flush());
  const bool stdio = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (streams && stdio) return code;
  fmt::print(stderr, "dsv4-oracle: cannot write to stdout\n");
  return cli::kFile;
}

/// A word where a command belongs, and is none: said by name, with those that there are.
void check_command(const CLI::App& app, int argc, char** argv, int at) {
  while (at < argc && argv[at][0] == '-') ++at;
  if (at >= argc) return;
  std::vector<std::string> names;
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (one->get_name() == argv[at]) return check_command(*one, argc, argv, at + 1);
    names.push_back(one->get_name());
  }
  if (names.empty()) return;
  throw UsageError(fmt::format("unknown command '{}' (did you mean {}? commands: {})",
                               std::string(argv[at]).substr(0, 60), cli::nearest(argv[at], names, 1).front(),
                               fmt::join(names, ", ")));
}

int run(int argc, char** argv) {
  CLI::App app{
      "Bit-exact oracle for DeepSeek-V4 attention: replays scripted token streams, dumps every tensor and "
      "finds "
      "the first divergence.",
      "dsv4-oracle"};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag(
      "--version", [] { return cli::version_text(); }, "Version, compiler, instruction sets, libraries");
  app.set_help_all_flag("--help-all", "Help of all commands");

  cli::Shared shared;
  for (int i = 0; i < argc; ++i) shared.arguments.emplace_back(argv[i]);
  app.add_flag("--json", shared.json, "JSON Lines instead of text");
  app.add_flag("--quiet", shared.quiet, "No progress on stderr");

  cli::Action action;
  cli::add_replay(app, shared, action);
  cli::add_diff(app, shared, action);
  cli::add_golden(app, shared, action);
  cli::add_check(app, shared, action);
  cli::add_recorded(app, shared, action);
  cli::add_inspect(app, shared, action);
  cli::add_import_trace(app, shared, action);
  cli::add_list(app, shared, action);
  cli::add_bench(app, shared, action);
  cli::add_probe(app, shared, action);
  cli::add_shrink(app, shared, action);
  cli::add_fuzz(app, shared, action);
  cli::add_explain(app, shared, action);

  check_command(app, argc, argv, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish_stdout(app.exit(error) == 0 ? cli::kDone : cli::kUsage);
  }
  oracle::catch_interrupts();
  return finish_stdout(action());
}

}  // namespace

int main(int argc, char** argv) {
  start_with_passive_threads(argv);
  try {
    require_strict_environment();
    return run(argc, argv);
  } catch (...) {
    return cli::report_error(std::current_exception());
  }
}
