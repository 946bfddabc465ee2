#include "scenario/scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "scenario/coverage.hpp"
#include "scenario/parse_parts.hpp"
#include "scenario/plan.hpp"
#include "scenario/read_text.hpp"
#include "scenario/sweep.hpp"

namespace dsv4::scenario {
namespace {

void take_cache(const YamlReader& reader, const YamlNode* node, Scenario& scenario) {
  const At<std::int32_t> widest = widest_verify(scenario.steps);
  bool draft_given = false;
  if (node != nullptr) scenario.cache = parse_cache(reader, *node, draft_given);
  Mark mark = widest.mark;
  if (!draft_given) {
    scenario.cache.draft_rows = widest.value;
  } else if (scenario.cache.draft_rows < widest.value) {
    reader.fail(widest.mark,
                fmt::format("rows {} is more than cache.draft, {}", widest.value, scenario.cache.draft_rows));
  } else {
    mark = node->find("draft")->mark;
  }
  // A verify step keeps online state in a bank for each row, also for a single one.
  const bool online = scenario.cache.c128_state == C128State::online &&
                      std::ranges::count(scenario.model.layers, LayerKind::hca) > 0;
  if (online && scenario.cache.draft_rows == 1 && has_verify(scenario.steps)) {
    if (draft_given) reader.fail(mark, "online state is verified, so draft must be 2 or more");
    scenario.cache.draft_rows = 2;
  }
  const std::string fault = drafting_fault(scenario.cache, scenario.model.layers);
  if (!fault.empty()) reader.fail(mark, fault);
}

Expect parse_expect(const YamlReader& reader, const YamlNode& node) {
  const MapReader map(reader, node, "expect", {"covers", "same_as"});
  Expect expect;
  if (const YamlNode* covers = map.optional("covers")) {
    for (const YamlNode& item : reader.list(*covers, "covers")) {
      const std::string fact = reader.text(item, "a coverage fact");
      if (!is_coverage_fact(fact)) {
        reader.fail(item.mark, fmt::format("unknown coverage fact '{}' ('list coverage' shows all)", fact));
      }
      expect.covers.push_back(fact);
    }
  }
  if (const YamlNode* same_as = map.optional("same_as")) {
    reader.word(*same_as, "same_as", {"sequential"});
    expect.same_as = "sequential";
  }
  return expect;
}

Trace parse_trace(const YamlReader& reader, const YamlNode& node) {
  const MapReader map(reader, node, "trace", {"block", "requests"});
  Trace trace;
  trace.block = reader.int32(map.required("block"), "block", 1, kMaxTokens);
  const YamlNode& requests = map.required("requests");
  reader.expect_map(requests, "requests");
  for (const auto& [key, value] : requests.entries) {
    reader.name(key, "request");
    const MapReader entry(reader, value, "a request of the trace", {"tokens", "blocks"});
    TracePrompt prompt;
    prompt.tokens = reader.int32(entry.required("tokens"), "tokens", 1, kMaxTokens);
    const YamlNode& blocks = entry.required("blocks");
    for (const YamlNode& item : reader.list(blocks, "blocks")) {
      prompt.blocks.push_back(reader.integer(item, "a hash id", 0, std::numeric_limits<std::int64_t>::max()));
    }
    const std::int64_t needed = (std::int64_t{prompt.tokens} + trace.block - 1) / trace.block;
    if (static_cast<std::int64_t>(prompt.blocks.size()) != needed) {
      reader.fail(blocks.mark,
                  fmt::format("blocks must list {} hash ids for {} tokens in blocks of {}, not {}", needed,
                              prompt.tokens, trace.block, prompt.blocks.size()));
    }
    trace.requests.emplace(key.text, std::move(prompt));
  }
  return trace;
}

void take_inputs(const YamlReader& reader, const MapReader& map, Scenario& scenario) {
  if (const YamlNode* hidden = map.optional("hidden")) {
    scenario.hidden_path = resolve_path(reader, reader.text(*hidden, "hidden"));
  }
  const YamlNode* weights = map.optional("weights");
  if (weights == nullptr) return;
  if (weights->kind == YamlNode::Kind::list) {
    if (weights->items.empty()) reader.fail(weights->mark, "weights is empty");
    for (const YamlNode& item : weights->items) {
      scenario.weights_paths.push_back(resolve_path(reader, reader.text(item, "a path of weights")));
    }
  } else {
    scenario.weights_paths.push_back(resolve_path(reader, reader.text(*weights, "weights")));
  }
}

/// A name is printed, and becomes part of file names.
std::string run_name(const YamlReader& reader, const YamlNode& node) {
  const std::string name = reader.text(node, "name");
  const auto wrong = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '/'; };
  if (name.size() > 128 || std::ranges::any_of(name, wrong)) {
    reader.fail(node.mark, fmt::format("name '{}' must have at most 128 bytes, without slashes and control "
                                       "characters",
                                       printable(name, 60)));
  }
  return name;
}

/// A scenario without a sweep section, all values in place.
Scenario parse_plain(const std::string& text, const std::string& file) {
  const YamlReader reader(file);
  const YamlNode root = parse_yaml(text, file);
  const MapReader map(reader, root, "a scenario",
                      {"name", "description", "class", "model", "profile", "seed", "seeded", "cache", "steps",
                       "sweep", "expect", "hidden", "weights", "trace"});
  if (const YamlNode* sweep = map.optional("sweep")) {
    reader.fail(sweep->mark, "sweep must stand at the start of a line, as a block of its own");
  }
  Scenario scenario;
  scenario.file = file;
  scenario.text = text;
  scenario.name = std::filesystem::path(file).stem().string();
  if (const YamlNode* name = map.optional("name")) scenario.name = run_name(reader, *name);
  if (const YamlNode* words = map.optional("description"))
    scenario.description = reader.text(*words, "description");
  if (const YamlNode* kind = map.optional("class")) scenario.fault_class = parse_class(reader, *kind);
  scenario.model = parse_model(reader, map.optional("model"));
  if (const YamlNode* profile = map.optional("profile")) {
    scenario.profile = parse_profile(reader, *profile);
    scenario.profile_given = true;
  }
  if (const YamlNode* seed = map.optional("seed")) scenario.seed = reader.uint64(*seed, "seed");
  scenario.steps = parse_steps(reader, map.required("steps"));
  take_cache(reader, map.optional("cache"), scenario);
  take_inputs(reader, map, scenario);
  if (const YamlNode* edits = map.optional("seeded")) {
    scenario.seed_edits = parse_seed_edits(reader, *edits, scenario.model);
    for (const SeedEdit& edit : scenario.seed_edits) {
      const bool from_file =
          edit.tensor == "hidden" ? !scenario.hidden_path.empty() : !scenario.weights_paths.empty();
      if (from_file)
        reader.fail(edits->mark, fmt::format("{} comes from a file and is not seeded", edit.tensor));
    }
  }
  if (const YamlNode* trace = map.optional("trace")) scenario.trace = parse_trace(reader, *trace);
  if (const YamlNode* expect = map.optional("expect")) scenario.expect = parse_expect(reader, *expect);
  return scenario;
}

std::string suffix(const std::vector<SweepVariable>& variables, const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "[" : ",", variables[i].name, values[i]);
  }
  return text + "]";
}

}  // namespace

bool is_request_name(std::string_view text) {
  if (text.empty() || text.size() > 64 || text.front() < 'a' || text.front() > 'z') return false;
  return std::ranges::all_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

Scenario load_scenario(const std::string& path) {
  return parse_scenario(read_text(path), path);
}

Scenario parse_scenario(std::string_view text, const std::string& file_name) {
  require_text(text, file_name);
  const SweepText sweep = split_sweep(text, file_name);
  Scenario scenario = parse_plain(substitute(sweep, sweep_values(sweep.variables, 0), file_name), file_name);
  scenario.text = text;
  scenario.sweep = sweep.variables;
  return scenario;
}

std::vector<Scenario> expand(const Scenario& scenario) {
  if (scenario.sweep.empty()) return {scenario};
  const SweepText sweep = split_sweep(scenario.text, scenario.file);
  std::vector<Scenario> runs;
  for (std::size_t run = 0; run < sweep_runs(sweep.variables); ++run) {
    const std::vector<std::string> values = sweep_values(sweep.variables, run);
    const std::string tail = suffix(sweep.variables, values);
    try {
      runs.push_back(parse_plain(substitute(sweep, values, scenario.file), scenario.file));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{} {}", error.what(), tail));
    }
    runs.back().name += tail;
  }
  return runs;
}

}  // namespace dsv4::scenario
