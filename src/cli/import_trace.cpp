#include "scenario/import_trace.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "io/atomic_file.hpp"
#include "io/output_path.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter =
    R"(First come, first served: each step decodes every running request, then fills up to --max-batch-tokens with prefill
chunks. Timestamps give the order only.

Example:
  dsv4-oracle import-trace data/traces/mooncake-conversation-1000.jsonl --requests 4 --scale 128 --output trace.yaml
  dsv4-oracle replay trace.yaml --check)";

struct ImportOptions {
  std::string trace;
  std::string output;
  scenario::TraceOptions trace_options;
  std::string layers = "swa,csa,hca";
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void write_file(const std::string& path, const std::string& text) {
  io::AtomicFile out(path);
  out.write(text);
  out.finish();
}

int run(ImportOptions options) {
  options.trace_options.layers = split(options.layers);
  if (!options.output.empty()) {
    io::OutputPaths paths;
    paths.reads(options.trace);
    paths.writes(options.output, io::OutputKind::text);
  }
  const std::string text = scenario::import_trace(options.trace, options.trace_options);
  // What is written must be a scenario that runs.
  const std::string file = options.output.empty() ? options.trace : options.output;
  const RunPlan plan = scenario::plan(scenario::parse_scenario(text, file));
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(options.output, text);
  }
  std::int64_t tokens = 0;
  for (const StepPlan& step : plan.steps) tokens += static_cast<std::int64_t>(step.rows.size());
  fmt::print(stderr, "{} requests, {} steps, {} tokens{}\n", plan.config.requests.size(), plan.steps.size(),
             tokens, options.output.empty() ? "" : " -> " + options.output);
  return kDone;
}

}  // namespace

void add_import_trace(CLI::App& app, Shared&, Action& action) {
  auto options = std::make_shared<ImportOptions>();
  scenario::TraceOptions& trace = options->trace_options;
  CLI::App* const command =
      app.add_subcommand("import-trace", "Turn a serving trace (JSON Lines) into a scenario");
  command->footer(kFooter);
  command->add_option("trace", options->trace, "Trace file")->type_name("TRACE.jsonl")->required();
  command->add_option("-o,--output", options->output, "Scenario to write; stdout without it")
      ->type_name("OUT.yaml");
  command->add_option("--requests", trace.limit, "First requests of the trace; 0: all")->type_name("N");
  command
      ->add_option("--scale", trace.scale, "Divide lengths and the block of 512 tokens by this power of two")
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--max-batch-tokens", trace.max_batch_tokens, "Rows of a step")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--max-running", trace.max_running, "Requests that run at the same time")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--preset", trace.preset, "Model preset")->type_name("NAME")->capture_default_str();
  command->add_option("--layers", options->layers, "Layer kinds")->type_name("LIST")->capture_default_str();
  command->add_option("--profile", trace.profile, "Numeric profile")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--name", trace.name, "Name of the scenario")->type_name("NAME");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace dsv4::cli
