#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/inspect_rows.hpp"
#include "cli/json_lines.hpp"
#include "cli/nearest.hpp"
#include "io/decode.hpp"
#include "io/dump_reader.hpp"
#include "oracle/selection.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  dsv4-oracle inspect run.h5                                       what it is, its steps
  dsv4-oracle inspect run.h5 --step 3                              the tensors of a step, with range figures
  dsv4-oracle inspect run.h5 /steps/000003/layer_00/q.up/q --at 0,2,17
  dsv4-oracle inspect run.h5 --step 3 --layer 0 --cache window --slot 70
  dsv4-oracle inspect run.h5 --verify                              every digest, recomputed)";

struct InspectOptions {
  std::string file;
  std::string path;
  std::string at;
  std::optional<std::int64_t> step;
  RowQuery row;
  bool verify = false;
};

nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string joined(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

std::string axes_that_differ(const Profile& profile) {
  std::string text;
  for (const AxisInfo& axis : axes()) {
    if (profile.value(axis.axis) == axis.values.front()) continue;
    text += (text.empty() ? "" : ", ") + std::string(axis.name) + "=" + std::string(profile.value(axis.axis));
  }
  return text.empty() ? "none" : text;
}

void print_summary(const io::DumpReader& reader, bool json) {
  const SourceInfo& info = reader.info();
  const RunConfig& config = info.config;
  std::string layers;
  for (const LayerKind kind : config.layers) layers += (layers.empty() ? "" : ", ") + std::string(name(kind));
  if (json) {
    print_json_line({{"type", "dump"},
                     {"file", reader.path()},
                     {"complete", info.complete},
                     {"engine", info.engine},
                     {"device", info.device},
                     {"profile", config.profile.name},
                     {"seed", std::to_string(config.seed)},
                     {"layers", layers},
                     {"chain", config.chain},
                     {"dim", config.geometry.dim},
                     {"heads", config.geometry.heads},
                     {"requests", config.requests},
                     {"steps", reader.steps().size()},
                     {"tool_version", reader.tool_version()}});
  } else {
    fmt::print("{}: {}\n", reader.path(),
               info.complete ? "complete" : "PARTIAL (the run that wrote it did not finish)");
    fmt::print("engine    {} on {}, written by version {}\n", info.engine, info.device,
               reader.tool_version());
    fmt::print("profile   {} (axes changed: {}), seed {}\n", config.profile.name,
               axes_that_differ(config.profile), config.seed);
    fmt::print("model     dim {}, q_lora {}, heads {}, o_groups {}, index heads {}, top-k {}\n",
               config.geometry.dim, config.geometry.q_lora, config.geometry.heads, config.geometry.o_groups,
               config.geometry.index_heads, config.geometry.index_topk);
    fmt::print("layers    {}{}\n", layers, config.chain ? ", chained" : "");
    std::string requests;
    for (const std::string& request : config.requests) requests += (requests.empty() ? "" : ", ") + request;
    fmt::print("requests  {}\n", requests);
    fmt::print("steps     {}\n\n{:>6}  {:>6}  {:>8}  event\n", reader.steps().size(), "step", "tokens",
               "tensors");
  }
  for (const std::int64_t step : reader.steps()) {
    const std::vector<io::DumpEntry> entries = reader.list(step);
    std::int64_t tokens = 0;
    std::int64_t tensors = 0;
    for (const io::DumpEntry& entry : entries) {
      if (entry.stage == "batch" && entry.tensor == "request")
        tokens = entry.shape.empty() ? 0 : entry.shape[0];
      if (entry.layer >= 0) ++tensors;
    }
    const std::string event = reader.read_step(step).event;
    if (json) {
      print_json_line({{"type", "dump_step"},
                       {"step", step},
                       {"tokens", tokens},
                       {"tensors", tensors},
                       {"event", event}});
    } else {
      fmt::print("{:>6}  {:>6}  {:>8}  {}\n", step, tokens, tensors, event);
    }
  }
}

void print_entry(const io::DumpReader& reader, const io::DumpEntry& entry, bool json) {
  const io::Figures figures = io::figures(reader.read_path(entry.path));
  const std::int64_t nonfinite = figures.nan + figures.infinite;
  if (json) {
    nlohmann::ordered_json line{{"type", "tensor"},
                                {"path", entry.path},
                                {"dtype", name(entry.dtype)},
                                {"shape", entry.shape},
                                {"dims", entry.dims},
                                {"role", entry.role},
                                {"digest", entry.digest},
                                {"stored_bytes", entry.stored_bytes},
                                {"minimum", number(figures.minimum)},
                                {"maximum", number(figures.maximum)},
                                {"rms", number(figures.rms)},
                                {"nan", figures.nan},
                                {"infinite", figures.infinite},
                                {"zero", figures.zero},
                                {"saturated", figures.saturated}};
    if (figures.first_non_finite) line["first_non_finite"] = *figures.first_non_finite;
    print_json_line(line);
    return;
  }
  fmt::print("{:<52} {:<16} {:<18} {:>12.5g} {:>12.5g} {:>12.5g}  {}\n", entry.path, name(entry.dtype),
             joined(entry.shape), figures.minimum, figures.maximum, figures.rms,
             nonfinite == 0 ? std::string()
                            : fmt::format("{} not finite, first at {}", nonfinite,
                                          figures.first_non_finite.value_or(-1)));
}

void print_step(const io::DumpReader& reader, std::int64_t step, bool json) {
  if (!reader.has_step(step)) throw UsageError(fmt::format("{}: holds no step {}", reader.path(), step));
  if (!json) {
    fmt::print("step {}: {}\n", step, reader.read_step(step).event);
    fmt::print("{:<52} {:<16} {:<18} {:>12} {:>12} {:>12}\n", "tensor", "dtype", "shape", "minimum",
               "maximum", "rms");
  }
  for (const io::DumpEntry& entry : reader.list(step)) print_entry(reader, entry, json);
}

std::vector<std::int64_t> parse_coordinate(const std::string& text, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> coordinate;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    std::int64_t value = -1;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && *next != ',')) break;
    coordinate.push_back(value);
    at = next + (next != end ? 1 : 0);
    if (next == end) break;
  }
  bool inside = coordinate.size() == shape.size() && at == end;
  for (std::size_t i = 0; inside && i < shape.size(); ++i)
    inside = coordinate[i] >= 0 && coordinate[i] < shape[i];
  if (!inside) throw UsageError("--at " + text + ": the tensor has shape " + joined(shape));
  return coordinate;
}

/// PATH is what was typed: a name that is not there is a mistake of the command line, not of the file.
void require_dataset(const io::DumpReader& reader, const std::string& path) {
  std::vector<std::string> names;
  for (const io::DumpEntry& entry : reader.list()) {
    if (entry.path == path) return;
    names.push_back(entry.path);
  }
  std::string near;
  for (const std::string& name : nearest(path, std::move(names), 3))
    near += (near.empty() ? "" : ", ") + name;
  throw UsageError(fmt::format("{}: there is no dataset {} (near it: {})", reader.path(), path, near));
}

void check_options(const InspectOptions& options) {
  const auto needs = [](bool given, const char* option, bool have, const char* other) {
    if (given && !have) throw UsageError(fmt::format("inspect: {} needs {}", option, other));
  };
  const auto alone = [](bool given, const char* option, bool with, const char* other) {
    if (given && with) throw UsageError(fmt::format("inspect: {} and {} exclude each other", option, other));
  };
  const RowQuery& row = options.row;
  needs(!options.at.empty(), "--at", !options.path.empty(), "PATH");
  needs(row.slot.has_value(), "--slot", !row.cache.empty(), "--cache");
  needs(row.page.has_value(), "--page", !row.cache.empty(), "--cache");
  needs(!row.cache.empty(), "--cache", options.step.has_value(), "--step");
  alone(row.slot.has_value(), "--slot", row.page.has_value(), "--page");
  alone(!options.path.empty(), "PATH", options.step.has_value(), "--step");
  alone(options.verify, "--verify", !options.path.empty() || options.step.has_value(), "PATH or --step");
}

void print_element(const io::DumpReader& reader, const InspectOptions& options, bool json) {
  require_dataset(reader, options.path);
  const io::DumpEntry entry = reader.entry(options.path);
  if (options.at.empty()) {
    if (!json)
      fmt::print("{:<52} {:<16} {:<18} {:>12} {:>12} {:>12}\n", "tensor", "dtype", "shape", "minimum",
                 "maximum", "rms");
    print_entry(reader, entry, json);
    if (!json) fmt::print("dims {}, role {}, digest {}\n", entry.dims, entry.role, entry.digest);
    return;
  }
  const Tensor tensor = reader.read_path(options.path);
  std::int64_t element = 0;
  const std::vector<std::int64_t> coordinate = parse_coordinate(options.at, tensor.shape());
  for (std::size_t i = 0; i < coordinate.size(); ++i) element = element * tensor.shape()[i] + coordinate[i];
  const io::Element value = io::decode(tensor, element);
  if (json) {
    print_json_line({{"type", "element"},
                     {"path", options.path},
                     {"at", coordinate},
                     {"hex", value.hex},
                     {"value", number(value.value)},
                     {"text", value.text}});
  } else {
    fmt::print("{}[{}]  {}  {}  ({})\n", options.path, options.at, value.hex, value.text,
               name(tensor.dtype()));
  }
}

int run(const InspectOptions& options, const Shared& shared) {
  check_options(options);
  io::DumpReader reader(options.file);
  if (options.row.cache.empty()) {  // tensors are read one by one; a step is read for its event only
    reader.want({});
    reader.want_unrounded(false);
    reader.want_state_tensors(false);
  }
  if (options.verify) {
    reader.verify();
    if (shared.json)
      print_json_line({{"type", "verified"}, {"file", options.file}});
    else
      fmt::print("{}: every digest is right\n", options.file);
    return kDone;
  }
  if (!options.path.empty()) {
    print_element(reader, options, shared.json);
  } else if (!options.row.cache.empty()) {
    print_row(reader, *options.step, options.row, shared.json);
  } else if (options.step) {
    print_step(reader, *options.step, shared.json);
  } else {
    print_summary(reader, shared.json);
  }
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* const command =
      app.add_subcommand("inspect", "What is in a dump; decode one element, one page, one slot");
  command->footer(kFooter);
  command->add_option("file", options->file, "Dump, complete or partial")->type_name("FILE.h5")->required();
  command->add_option("path", options->path, "A dataset of the dump")->type_name("PATH");
  command->add_option("--at", options->at, "Coordinate of an element of PATH")->type_name("I,J,...");
  command->add_option("--step", options->step, "One step")->type_name("N");
  command->add_option("--layer", options->row.layer, "Layer of the row")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--cache", options->row.cache, "Decode rows of this cache")
      ->check(CLI::IsMember({"window", "entries", "index_entries"}));
  command->add_option("--slot", options->row.slot, "The row at this slot")->type_name("N");
  command->add_option("--page", options->row.page, "The rows of this page")->type_name("N");
  command->add_flag("--verify", options->verify, "Recompute every digest");
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
