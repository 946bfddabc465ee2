#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/check_report.hpp"
#include "cli/check_vectors.hpp"
#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/model_kernels.hpp"
#include "cli/nearest.hpp"
#include "compare/comparator.hpp"
#include "compare/element.hpp"
#include "model/element.hpp"
#include "oracle/golden/vector_set.hpp"
#include "oracle/selection.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::cli {
namespace {
namespace fs = std::filesystem;
namespace golden = oracle::golden;

constexpr const char* kFooter =
    R"(VECTORS is what `golden export` wrote (HDF5, safetensors or JSON), a file or the folder, or data/golden. RESULTS
holds your outputs under the same names: CASE.h5 with /steps/NNNNNN/STAGE/TENSOR, CASE.safetensors with
NNNNNN/STAGE/TENSOR, or the JSON tables with their outputs replaced. Compute each stage from the inputs in VECTORS and
leave out what you do not compute: it is counted and listed, and taken as read from VECTORS. bf16 travels as uint16
bits, FP8 and FP4 codes as uint8, one a byte.

Examples:
  dsv4-oracle golden export --format safetensors --output vectors/
  dsv4-oracle check vectors/ --with results/                       every bit
  dsv4-oracle check vectors/ --with results/ --rules values        rounding differences pass
  dsv4-oracle check vectors/ --with results/ --case canonical-csa --rule 'attention.core/out=ulp:2'
  dsv4-oracle golden export --profile vllm-fp8 --model-kernels --output vllm/
  dsv4-oracle check vllm/ --with results/ --rules hopper-exact     bits where a kernel of vLLM's is modelled

Exit codes: 0 nothing fails; 1 something fails; 2 nothing was compared; 3 a file, name, dtype or shape is refused.
docs/check.md shows how to write RESULTS in Python.)";

struct CheckOptions {
  std::string vectors;
  std::string results;
  std::string case_glob = "*";
  std::string rules = "bits";
  std::vector<std::string> rule_overrides;
  bool verbose = false;
};

compare::Rules rules_of(const CheckOptions& options, const golden::VectorSet& set, const RunConfig& config) {
  compare::Rules rules(compare::RuleSet::bits);
  const compare::RuleSet wanted = compare::rule_set_named(options.rules);
  if (wanted != compare::RuleSet::hopper_exact) {
    rules = compare::Rules(wanted);
  } else if (set.kernel_models.empty()) {
    throw UsageError(
        "--rules hopper-exact: " + set.name +
        " was computed without kernel models; export vectors with --profile NAME --model-kernels");
  } else {
    rules = hopper_exact_rules(config);
  }
  for (const std::string& text : options.rule_overrides) rules.add_override(text);
  return rules;
}

/// The file of each case; empty where the results have none.
std::map<std::string, std::string> files_by_case(const std::string& path,
                                                 const std::vector<std::string>& cases) {
  std::map<std::string, std::string> files;
  const auto known = [&](const std::string& name) { return std::ranges::find(cases, name) != cases.end(); };
  if (!fs::exists(path)) throw FileError(path + ": does not exist");
  std::vector<std::string> found;
  if (!fs::is_directory(path)) {
    found.push_back(path);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".h5" || extension == ".hdf5" || extension == ".safetensors")
        found.push_back(entry.path().string());
    }
    std::ranges::sort(found);
  }
  for (const std::string& file : found) {
    std::string name = golden::case_of_results(file);
    if (!known(name) && known(fs::path(file).stem().string())) name = fs::path(file).stem().string();
    if (!known(name) && cases.size() == 1 && found.size() == 1) name = cases.front();
    if (!known(name)) {
      throw FileError(fmt::format("{}: '{}' is no case of the vectors (nearest: {})", file, name,
                                  fmt::join(nearest(name, cases, 3), ", ")));
    }
    const auto [at, added] = files.emplace(name, file);
    if (!added) throw FileError(file + ": " + at->second + " is of the same case, " + name);
  }
  return files;
}

void check_names(const std::string& file, const golden::VectorSet& set) {
  std::vector<std::string> known;
  for (const golden::KeptTensor& kept : set.tensors) known.push_back(kept.path());
  for (const std::string& name : golden::result_names(file)) {
    if (set.find(name) != nullptr) continue;
    throw FileError(fmt::format("{}: '{}' is no tensor of {} (nearest: {})", file, name, set.name,
                                fmt::join(nearest(name, known, 3), ", ")));
  }
}

/// Inputs may be left out, and what only some implementations hold between two steps of a stage.
bool is_output(const compare::Skip& skip) {
  const auto stage = stage_named(skip.stage);
  const auto id = stage ? tensor_named(*stage, skip.tensor) : std::nullopt;
  return id && info(*id).role == Role::output;
}

/// Steps between the two values at the first difference.
std::int64_t first_distance(const compare::Comparison& one, const golden::StepRows& expected,
                            const golden::StepRows& found) {
  if (!one.id || one.first.empty()) return -1;
  const Tensor& a = expected.observation.layers.front().tensors.at(*one.id);
  const Tensor& b = found.observation.layers.front().tensors.at(*one.id);
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || one.first.size() != a.shape().size()) return -1;
  std::int64_t element = 0;
  for (std::size_t axis = 0; axis < one.first.size(); ++axis)
    element = element * a.dim(axis) + one.first[axis];
  return compare::ulp_distance(a.dtype(), load_bits(a, element), load_bits(b, element));
}

void check_case(const CheckOptions& options, const golden::VectorSet& set, const std::string& file,
                CheckReport& report) {
  const scenario::Scenario scenario = scenario::parse_scenario(set.scenario, set.name + ".yaml");
  const RunPlan plan = scenario::plan(scenario);
  if (plan.config.layers.size() != 1) throw FileError(set.file + ": holds a case of several layers");
  golden::ResultSet results;
  if (!file.empty()) {
    check_names(file, set);
    results = golden::read_results(file, set);
  }
  const SourceInfo expected_info{"vectors", set.file, true, true, plan.config, set.scenario};
  const SourceInfo found_info{"results", file, true, true, plan.config, set.scenario};
  const compare::Rules rules = rules_of(options, set, plan.config);
  report.begin({set.name, set.file, file, plan.config.profile.name, set.kernel_models, options.rules});

  const golden::StepRows* current = nullptr;
  compare::CompareOptions compare_options;
  compare_options.taken_from_reference = true;
  compare_options.unjudged_reason = "rows that the vectors do not keep";
  compare_options.judged_row = [&current](int, TensorId id, std::int64_t row) {
    const auto found = current->kept.find(id);
    return found != current->kept.end() && found->second[static_cast<std::size_t>(row)];
  };
  compare::Comparator comparator(expected_info, found_info, rules, compare_options);
  for (const StepPlan& step : plan.steps) {
    const golden::StepRows expected = golden::step_rows(plan.config, step, set, nullptr);
    const golden::StepRows found = golden::step_rows(plan.config, step, set, &results);
    current = &expected;
    const compare::StepComparison comparison = comparator.compare(expected.observation, found.observation);
    for (const compare::Comparison& one : comparison.comparisons)
      report.tensor(one, first_distance(one, expected, found));
    for (const compare::Skip& skip : comparison.skips) {
      if (is_output(skip)) report.missing(skip.step, skip.stage, skip.tensor);
    }
  }
}

int run(const CheckOptions& options, const Shared& shared) {
  if (!fs::exists(options.vectors)) throw FileError(options.vectors + ": does not exist");
  if (!fs::exists(options.results)) throw FileError(options.results + ": does not exist");
  compare::rule_set_named(options.rules);
  CheckReport report(shared.json, options.verbose);
  const bool folder = fs::is_directory(options.vectors);
  std::vector<std::string> tables = vector_files_of(options.vectors);
  const bool only_tables =
      folder ? !tables.empty() && std::ranges::none_of(fs::directory_iterator(options.vectors),
                                                       [](const auto& entry) {
                                                         return entry.path().extension() == ".h5" ||
                                                                entry.path().extension() == ".safetensors";
                                                       })
             : !tables.empty();
  if (only_tables) {
    const compare::RuleSet set = compare::rule_set_named(options.rules);
    if (set == compare::RuleSet::hopper_exact)
      throw UsageError("--rules hopper-exact: tables of single operations have no kernel");
    if (!options.rule_overrides.empty())
      throw UsageError("--rule: tables of single operations have no tensor that a pattern could name");
    if (std::ranges::none_of(tables, [&](const std::string& table) {
          return oracle::glob_match(options.case_glob, fs::path(table).stem().string());
        })) {
      throw UsageError("no table of " + options.vectors + " matches '" + options.case_glob + "'");
    }
    for (const std::string& table : tables) {
      const std::string stem = fs::path(table).stem().string();
      if (!oracle::glob_match(options.case_glob, stem)) continue;
      std::string results = options.results;
      if (fs::is_directory(results)) results = (fs::path(results) / (stem + ".json")).string();
      if (!fs::exists(results)) results.clear();
      check_vector_file(table, results, compare::Rules(set), report);
    }
    return report.finish();
  }
  std::vector<golden::VectorSet> sets = golden::read_vector_sets(options.vectors);
  std::vector<std::string> names;
  for (const golden::VectorSet& set : sets) names.push_back(set.name);
  const std::map<std::string, std::string> files = files_by_case(options.results, names);
  std::erase_if(
      sets, [&](const golden::VectorSet& set) { return !oracle::glob_match(options.case_glob, set.name); });
  if (sets.empty()) {
    throw UsageError("no case of " + options.vectors + " matches '" + options.case_glob +
                     "' (cases: " + fmt::format("{}", fmt::join(names, ", ")) + ")");
  }
  for (const golden::VectorSet& set : sets) {
    const auto file = files.find(set.name);
    check_case(options, set, file == files.end() ? "" : file->second, report);
  }
  return report.finish();
}

}  // namespace

void add_check(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* const command =
      app.add_subcommand("check", "Judge another implementation's outputs against golden vectors");
  command->footer(kFooter);
  command->add_option("vectors", options->vectors, "Golden vectors: a file or a folder")
      ->type_name("VECTORS")
      ->required();
  command->add_option("--with", options->results, "Outputs of the implementation: a file or a folder")
      ->type_name("RESULTS")
      ->required();
  command->add_option("--case", options->case_glob, "Only these cases")
      ->type_name("GLOB")
      ->capture_default_str();
  command
      ->add_option(
          "--rules", options->rules,
          "bits: only equal passes; values: rounding differences pass; hopper-exact: as values, but bits "
          "of what kernel models computed from the same inputs")
      ->check(CLI::IsMember({"bits", "values", "hopper-exact"}))
      ->capture_default_str();
  command->add_option("--rule", options->rule_overrides, "Rule of some tensors, for example 'q.up/.*=ulp:1'")
      ->type_name("REGEX=RULE");
  command->add_flag("--verbose", options->verbose, "A line for every tensor, and all that is missing");
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
