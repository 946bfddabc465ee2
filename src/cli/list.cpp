#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>

#include "cli/command.hpp"
#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "cli/kernels/kernel_table.hpp"
#include "cli/list_coverage.hpp"
#include "model/profile.hpp"
#include "model/stage.hpp"
#include "oracle/faults/catalogue.hpp"
#include "scenario/coverage.hpp"

namespace dsv4::cli {
namespace {

void list_stages(bool json) {
  if (!json) fmt::print("{:<18} {:<4} {:<4} {:<4} {:<8} tensors\n", "stage", "swa", "csa", "hca", "restore");
  for (std::size_t s = 0; s < kStageCount; ++s) {
    const auto stage = static_cast<Stage>(s);
    std::string tensors;
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (tensor.stage == stage) tensors += (tensors.empty() ? "" : ", ") + std::string(tensor.name);
    }
    const auto in = [&](LayerKind kind, bool restore) {
      const auto order = execution_order(kind, restore);
      return std::find(order.begin(), order.end(), stage) != order.end();
    };
    const auto yes = [](bool value) { return value ? "yes" : "-"; };
    const bool restore = in(LayerKind::csa, true) || in(LayerKind::hca, true);
    if (json) {
      print_json_line({{"type", "stage"},
                       {"stage", name(stage)},
                       {"swa", in(LayerKind::swa, false)},
                       {"csa", in(LayerKind::csa, false)},
                       {"hca", in(LayerKind::hca, false)},
                       {"restore", restore},
                       {"tensors", tensors}});
    } else {
      fmt::print("{:<18} {:<4} {:<4} {:<4} {:<8} {}\n", name(stage), yes(in(LayerKind::swa, false)),
                 yes(in(LayerKind::csa, false)), yes(in(LayerKind::hca, false)), yes(restore), tensors);
    }
  }
}

void list_tensors(bool json) {
  if (!json) fmt::print("{:<34} {:<16} {:<20} role\n", "tensor", "dtype", "dims");
  for (const TensorInfo& tensor : tensor_catalogue()) {
    if (json) {
      print_json_line({{"type", "tensor"},
                       {"tensor", path(tensor.id)},
                       {"dtype", name(tensor.dtype)},
                       {"dims", tensor.dims},
                       {"role", name(tensor.role)}});
    } else {
      fmt::print("{:<34} {:<16} {:<20} {}\n", path(tensor.id), name(tensor.dtype), tensor.dims,
                 name(tensor.role));
    }
  }
}

void list_profiles(bool json) {
  for (const std::string_view profile_name : profile_names()) {
    const Profile profile = profile_named(profile_name);
    std::string changes;
    for (const AxisInfo& axis : axes()) {
      if (profile.value(axis.axis) == axis.values.front()) continue;
      changes += (changes.empty() ? "" : ", ") + std::string(axis.name) + "=" +
                 std::string(profile.value(axis.axis));
    }
    const std::string note = profile.exact     ? "no rounding point, no quantisation (engine wide)"
                             : changes.empty() ? "the first value of every axis"
                                               : changes;
    if (json)
      print_json_line({{"type", "profile"}, {"profile", profile_name}, {"note", note}});
    else
      fmt::print("{:<12} {}\n", profile_name, note);
  }
  if (!json) fmt::print("\naxes (the first value is the canonical one)\n");
  for (const AxisInfo& axis : axes()) {
    std::string values;
    for (const std::string_view value : axis.values)
      values += (values.empty() ? "" : ", ") + std::string(value);
    if (json)
      print_json_line({{"type", "axis"}, {"axis", axis.name}, {"values", values}});
    else
      fmt::print("{:<16} {}\n", axis.name, values);
  }
}

void list_models(bool json) {
  if (!json) {
    fmt::print("{:<10} {:>6} {:>7} {:>6} {:>9} {:>7} {:>12} {:>11}\n", "preset", "dim", "q_lora", "heads",
               "o_groups", "o_lora", "index_heads", "index_topk");
  }
  for (const std::string_view preset : geometry_presets()) {
    const Geometry g = geometry_preset(preset);
    if (json) {
      print_json_line({{"type", "model"},
                       {"preset", preset},
                       {"dim", g.dim},
                       {"q_lora", g.q_lora},
                       {"heads", g.heads},
                       {"o_groups", g.o_groups},
                       {"o_lora", g.o_lora},
                       {"index_heads", g.index_heads},
                       {"index_topk", g.index_topk}});
    } else {
      fmt::print("{:<10} {:>6} {:>7} {:>6} {:>9} {:>7} {:>12} {:>11}\n", preset, g.dim, g.q_lora, g.heads,
                 g.o_groups, g.o_lora, g.index_heads, g.index_topk);
    }
  }
}

void list_scenario(const std::string& file, const scenario::Scenario& scenario, bool json) {
  const std::string stem = std::filesystem::path(file).stem().string();
  if (json) {
    print_json_line({{"type", "scenario"},
                     {"name", stem},
                     {"file", file},
                     {"class", scenario.fault_class},
                     {"description", scenario.description}});
  } else {
    fmt::print("  {:<36} {}\n", stem, scenario.description);
  }
}

/// By class, those without one last; then the ones of real geometry.
void list_scenarios(bool json) {
  if (!json) fmt::print("{}\n", scenario_folder());
  std::vector<std::string> titles;
  std::map<std::string, std::string> about;
  for (const scenario::FaultClass& one : scenario::fault_classes()) {
    titles.emplace_back(one.name);
    about.emplace(one.name, one.description);
  }
  titles.emplace_back();
  std::map<std::string, std::vector<std::pair<std::string, scenario::Scenario>>> by_class;
  std::vector<std::string> files = own_scenarios();
  for (const std::string& file : reference_scenarios()) files.push_back(file);
  for (const std::string& file : files) {
    scenario::Scenario scenario = scenario::load_scenario(file);
    std::string title = scenario.fault_class;
    by_class[title].emplace_back(file, std::move(scenario));
  }
  for (const std::string& title : titles) {
    if (by_class[title].empty()) continue;
    if (!json) fmt::print("\n{}\n", title.empty() ? "other" : title + ": " + about[title]);
    for (const auto& [file, scenario] : by_class[title]) list_scenario(file, scenario, json);
  }
  const std::vector<std::string> real = real_scenarios();
  if (!json && !real.empty()) fmt::print("\nreal geometry\n");
  for (const std::string& file : real) list_scenario(file, scenario::load_scenario(file), json);
}

void list_coverage(bool json) {
  for (const scenario::CoverageFact& fact : scenario::coverage_catalogue()) {
    if (json)
      print_json_line({{"type", "coverage"}, {"name", fact.name}, {"description", fact.description}});
    else
      fmt::print("{:<36} {}\n", fact.name, fact.description);
  }
}

void list_engines(bool json) {
  for (const std::string& engine : engine_names()) {
    if (json)
      print_json_line({{"type", "engine"}, {"name", engine}});
    else
      fmt::print("{}\n", engine);
  }
}

void list_devices(bool json) {
  const std::vector<std::string> devices = device_names();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (json)
      print_json_line({{"type", "device"}, {"device", i}, {"name", devices[i]}});
    else
      fmt::print("{:<4} {}\n", i, devices[i]);
  }
}

void list_faults(bool json, bool markdown) {
  if (markdown) {
    fmt::print("{}", oracle::faults::markdown());
    return;
  }
  for (const oracle::faults::FaultInfo& fault : oracle::faults::catalogue()) {
    if (json) {
      print_json_line({{"type", "fault"},
                       {"fault", fault.name},
                       {"number", fault.number},
                       {"family", name(fault.family)},
                       {"field", fault.field},
                       {"reported", fault.reported},
                       {"scenario", fault.scenario},
                       {"by_effect", fault.by_effect},
                       {"verdict", fault.verdict}});
    } else {
      fmt::print("{:<30} {:<5} {:<16} {}\n", fault.name, fault.number, fault.reported, fault.field);
    }
  }
  if (!json) fmt::print("{:<30} {:<5} {:<16} {}\n", "bitflip:TENSOR[:element[:bit]]", "", "the tensor's", "One bit of a published tensor.");
}

constexpr std::array<std::string_view, 10> kTopics{"stages",   "tensors", "profiles", "models", "scenarios",
                             "coverage", "engines", "devices",  "faults", "kernels"};

int run(const std::string& what, bool json, bool markdown) {
  if (markdown && what != "faults" && what != "kernels")
    throw UsageError("list: --markdown is for 'list faults' and 'list kernels'");
  if (what == "stages")
    list_stages(json);
  else if (what == "tensors")
    list_tensors(json);
  else if (what == "profiles")
    list_profiles(json);
  else if (what == "models")
    list_models(json);
  else if (what == "scenarios")
    list_scenarios(json);
  else if (what == "coverage")
    list_coverage(json);
  else if (what == "devices")
    list_devices(json);
  else if (what == "faults")
    list_faults(json, markdown);
  else if (what == "kernels")
    print_kernel_table(json, markdown);
  else
    list_engines(json);
  return kDone;
}

}  // namespace

void add_list(CLI::App& app, Shared& shared, Action& action) {
  struct Options {
    std::vector<std::string> names;
    bool coverage = false;
    bool markdown = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand(
      "list", "Names: stages, tensors, profiles, models, scenarios, coverage, engines, devices, faults, kernels");
  command->footer(
      "Examples:\n  dsv4-oracle list tensors\n  dsv4-oracle list coverage --json\n"
      "  dsv4-oracle list --coverage verify-grid rewind");
  command->add_option("what", options->names, "What to list; with --coverage scenarios, all own ones without any")
      ->type_name("WHAT");
  command->add_flag("--coverage", options->coverage,
                    "Which facts the scenarios reach; exit code 1 if one is reached by none");
  command->add_flag("--markdown", options->markdown, "As a page of the documentation (faults, kernels)");
  command->callback([options, &shared, &action] {
    action = [options, &shared] {
      if (options->coverage) return list_coverage_reach(options->names, shared.json);
      const std::vector<std::string>& names = options->names;
      if (names.size() != 1 || std::ranges::find(kTopics, names.front()) == kTopics.end()) {
        throw UsageError(fmt::format("list: name one of {}", fmt::join(kTopics, ", ")));
      }
      return run(names.front(), shared.json, options->markdown);
    };
  });
}

}  // namespace dsv4::cli
