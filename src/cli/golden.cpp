#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command.hpp"
#include "cli/data_folder.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "cli/model_kernels.hpp"
#include "io/output_path.hpp"
#include "oracle/golden/export.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/golden/vectors.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"

namespace dsv4::cli {
namespace {
namespace golden = oracle::golden;

constexpr const char* kFooter = R"(Examples:
  dsv4-oracle golden list                                         cases and their sizes
  dsv4-oracle golden verify                                       recompute everything, compare digests and rows
  dsv4-oracle golden verify --engine cuda --case 'canonical-*'
  dsv4-oracle golden export --format safetensors --output vectors/
  dsv4-oracle golden export --format json --output vectors/       conversions, quantiser, top-k, ring addresses
  dsv4-oracle golden export --weights --case canonical-csa --output weights/
  dsv4-oracle golden export --profile vllm-fp8 --model-kernels --output vllm/

Your implementation writes its outputs under the same names, in a folder of files with the same names; what it does
not compute it leaves out. Then: dsv4-oracle check vectors/ --with results/ (docs/check.md has an example in Python).)";

struct GoldenOptions {
  std::string folder;
  std::string output;
  std::string case_glob = "*";
  std::string engine = "reference";
  std::string format = "hdf5";
  bool weights = false;
  std::string profile;         ///< of an export; empty: the cases that the repository holds
  bool model_kernels = false;  ///< of an export
  ComputeOptions compute;
};

std::vector<golden::Case> chosen_cases(const GoldenOptions& options) {
  if (options.profile.empty()) return golden::cases_matching(options.case_glob);
  return golden::cases_matching(options.case_glob, golden::cases_of_profile(options.profile));
}

/// The engine that computes, its stages by kernel models where that was asked for. Golden vectors are bits;
/// only profile exact, which rounds nothing, is for an engine that promises none.
EngineFactory factory_of(const GoldenOptions& options) {
  EngineFactory plain = [made = engine_factory(options.compute.engine)](
                            const std::string& name, const RunConfig& config,
                            std::shared_ptr<const WeightSource> weights,
                            std::shared_ptr<const HiddenSource> hidden) {
    auto engine = made(name, config, std::move(weights), std::move(hidden));
    if (!engine->info().bit_exact && config.profile.name != "exact")
      throw UsageError("golden: engine " + name + " promises no bits; it computes profile exact alone");
    return engine;
  };
  if (!options.model_kernels) return plain;
  return [plain](const std::string& name, const RunConfig& config,
                 std::shared_ptr<const WeightSource> weights, std::shared_ptr<const HiddenSource> hidden) {
    return with_model_kernels(plain(name, config, weights, std::move(hidden)), weights);
  };
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder + ": cannot create the folder: " + error.message());
}

/// Runs `use` on a record of each chosen case; false when interrupted.
template <class Use>
bool for_each_record(const GoldenOptions& options, const Shared& shared, Use use) {
  apply(options.compute);
  check_engine_name(options.engine);
  check_engine_options(options.compute.engine, {options.engine});
  if (options.model_kernels)
    require_kernel_models(profile_named(options.profile.empty() ? "canonical" : options.profile));
  const std::vector<golden::Case> chosen = chosen_cases(options);
  oracle::Progress progress("golden", static_cast<std::int64_t>(chosen.size()), "cases", !shared.quiet);
  for (const golden::Case& one : chosen) {
    golden::Record record = golden::record(one, options.engine, factory_of(options));
    if (options.model_kernels) record.kernel_models = kernel_models_text(record.config);
    use(std::move(record));
    progress.advance(1, one.name);
    if (oracle::interrupted()) return false;
  }
  return true;
}

int generate(const GoldenOptions& options, const Shared& shared) {
  const std::string folder = options.folder.empty() ? golden_folder() : options.folder;
  check_engine_name(options.engine);
  io::OutputPaths::writes_folder(folder);
  if (std::filesystem::exists(folder)) {
    io::OutputPaths paths;
    for (const golden::Case& one : golden::cases_matching(options.case_glob))
      golden::check_files(paths, folder, one);
  }
  std::int64_t total = 0;
  const bool whole = for_each_record(options, shared, [&](const golden::Record& record) {
    make_folder(folder);
    const std::int64_t bytes = golden::write_files(folder, record);
    total += bytes;
    if (shared.json) {
      print_json_line({{"type", "golden_case"}, {"case", record.golden_case.name}, {"bytes", bytes}});
    } else {
      fmt::print("{:<34} {:>10}\n", record.golden_case.name, size_text(bytes));
    }
  });
  if (!shared.json) fmt::print("{} in {}\n", size_text(total), folder);
  return whole ? kDone : kInterrupted;
}

int verify(const GoldenOptions& options, const Shared& shared) {
  constexpr std::size_t kShown = 5;  // of a case; the first says where to look
  const std::string folder = options.folder.empty() ? golden_folder() : options.folder;
  std::int64_t compared = 0;
  std::size_t mismatches = 0;
  const bool whole = for_each_record(options, shared, [&](const golden::Record& record) {
    const golden::Verification result = golden::verify_files(folder, record);
    compared += result.compared;
    mismatches += result.mismatches.size();
    if (shared.json) {
      print_json_line({{"type", "golden_case"},
                       {"case", record.golden_case.name},
                       {"compared", result.compared},
                       {"mismatches", result.mismatches.size()}});
    } else {
      fmt::print("{:<34} {:>6} compared, {} differ\n", record.golden_case.name, result.compared,
                 result.mismatches.size());
    }
    for (std::size_t i = 0; i < std::min(kShown, result.mismatches.size()); ++i) {
      const golden::Mismatch& one = result.mismatches[i];
      if (shared.json) {
        print_json_line({{"type", "golden_mismatch"},
                         {"place", one.place},
                         {"expected", one.expected},
                         {"found", one.found}});
      } else {
        fmt::print("  {}: expected {}, found {}\n", one.place, one.expected, one.found);
      }
    }
  });
  if (!whole) return kInterrupted;
  if (!shared.json) fmt::print("{} compared, {} differ\n", compared, mismatches);
  return mismatches == 0 ? kDone : kFailed;
}

int list(const GoldenOptions& options, const Shared& shared) {
  const std::string folder = options.folder.empty() ? golden_folder() : options.folder;
  std::int64_t total = 0;
  if (!shared.json)
    fmt::print("{:<34} {:>10} {:>10} {:>6} {:>8}\n", "case", "digests", "rows", "steps", "tensors");
  for (const golden::Case& one : golden::cases_matching(options.case_glob)) {
    const golden::FileSummary about = golden::summary(folder, one);
    const auto text = [](std::int64_t bytes) {
      return bytes < 0 ? "absent" : bytes == 0 ? "-" : size_text(bytes);
    };
    total += std::max<std::int64_t>(0, about.digest_bytes) + std::max<std::int64_t>(0, about.row_bytes);
    if (shared.json) {
      print_json_line({{"type", "golden_case"},
                       {"case", about.name},
                       {"digest_bytes", about.digest_bytes},
                       {"row_bytes", about.row_bytes},
                       {"steps", about.steps},
                       {"tensors", about.tensors}});
    } else {
      fmt::print("{:<34} {:>10} {:>10} {:>6} {:>8}\n", about.name, text(about.digest_bytes),
                 text(about.row_bytes), about.steps, about.tensors);
    }
  }
  if (!shared.json) fmt::print("{} in {}\n", size_text(total), folder);
  return kDone;
}

/// The files that an export writes into its folder.
std::vector<std::pair<std::string, io::OutputKind>> exported_files(const GoldenOptions& options) {
  using io::OutputKind;
  std::vector<std::pair<std::string, OutputKind>> files;
  if (options.format == "json" && !options.weights) {
    if (options.case_glob != "*" || !options.profile.empty() || options.model_kernels)
      throw UsageError(
          "--format json writes tables of single operations, which belong to no case, profile or kernel: "
          "leave "
          "--case, --profile and --model-kernels out");
    for (const auto& [stem, content] : golden::vector_files())
      files.emplace_back(stem + ".json", OutputKind::text);
    return files;
  }
  for (const golden::Case& one : chosen_cases(options)) {
    if (options.weights) {
      files.emplace_back(one.name + ".weights.safetensors", OutputKind::safetensors);
    } else if (one.keeps_rows && options.format == "hdf5") {
      files.emplace_back(one.name + ".h5", OutputKind::hdf5);
    } else if (one.keeps_rows) {
      files.emplace_back(one.name + ".safetensors", OutputKind::safetensors);
    }
  }
  if (files.empty()) throw UsageError("none of the chosen cases keeps rows");
  if (options.format == "safetensors" && !options.weights)
    files.emplace_back("manifest.json", OutputKind::text);
  return files;
}

/// Everything that could stand in the way is found before anything is computed or created.
void check_export(const GoldenOptions& options) {
  if (options.weights && options.model_kernels)
    throw UsageError(
        "--weights writes weights alone, which kernel models do not change: leave --model-kernels out");
  if (options.weights && options.format == "json")
    throw UsageError("--weights writes safetensors: leave --format out");
  const auto files = exported_files(options);
  check_engine_name(options.engine);
  io::OutputPaths::writes_folder(options.output);
  if (!std::filesystem::exists(options.output)) return;
  io::OutputPaths paths;
  for (const auto& [name, kind] : files)
    paths.writes((std::filesystem::path(options.output) / name).string(), kind);
}

int export_vectors(const GoldenOptions& options, const Shared& shared) {
  check_export(options);
  std::vector<std::string> files;
  bool whole = true;
  if (options.format == "json" && !options.weights) {
    make_folder(options.output);
    files = golden::export_json(options.output);
  } else {
    std::vector<golden::Record> records;
    whole = for_each_record(options, shared,
                            [&](golden::Record record) { records.push_back(std::move(record)); });
    make_folder(options.output);
    if (options.weights) {
      files = golden::export_case_weights(options.output, records);
    } else {
      files = options.format == "hdf5" ? golden::export_hdf5(options.output, records)
                                       : golden::export_safetensors(options.output, records);
    }
  }
  for (const std::string& file : files) {
    if (shared.json)
      print_json_line({{"type", "file"}, {"path", file}});
    else
      fmt::print("{}\n", file);
  }
  return whole ? kDone : kInterrupted;
}

}  // namespace

void add_golden(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<GoldenOptions>();
  CLI::App* const command = app.add_subcommand("golden", "Test vectors for other implementations");
  command->footer(kFooter);
  command->require_subcommand(1);

  const auto add = [&](const char* name, const char* text, int (*run)(const GoldenOptions&, const Shared&)) {
    CLI::App* const sub = command->add_subcommand(name, text);
    sub->add_option("--case", options->case_glob, "Only these cases")
        ->type_name("GLOB")
        ->capture_default_str();
    sub->callback([options, &shared, &action, run] {
      action = [options, &shared, run] { return run(*options, shared); };
    });
    return sub;
  };
  const auto add_engine = [&](CLI::App* sub) {
    sub->add_option("--engine", options->engine, "Engine that computes")
        ->type_name("NAME")
        ->capture_default_str();
    add_compute_options(*sub, options->compute);
  };
  CLI::App* const generate_command = add("generate", "Compute the cases and write them", generate);
  CLI::App* const verify_command = add("verify", "Compute the cases and compare with what is stored", verify);
  CLI::App* const list_command = add("list", "Cases and their sizes", list);
  CLI::App* const export_command = add("export", "Write the cases in another format", export_vectors);
  for (CLI::App* const sub : {generate_command, verify_command, list_command}) {
    sub->add_option("--data", options->folder, "Folder of the golden data; the program's own without it")
        ->type_name("DIR");
  }
  for (CLI::App* const sub : {generate_command, verify_command, export_command}) add_engine(sub);
  export_command->add_option("-o,--output", options->output, "Folder to write to")
      ->type_name("DIR")
      ->required();
  export_command
      ->add_option("--format", options->format, "hdf5, safetensors, or json (scalar and block vectors)")
      ->check(CLI::IsMember({"hdf5", "safetensors", "json"}))
      ->capture_default_str();
  export_command
      ->add_option("--profile", options->profile,
                   "Cases of this profile: PROFILE-swa, PROFILE-csa, PROFILE-hca")
      ->type_name("NAME");
  export_command->add_flag("--model-kernels", options->model_kernels,
                           "Stages by models of the profile's production kernels (see: list kernels)");
  export_command->add_flag("--weights", options->weights,
                           "The seeded weights under checkpoint names, as safetensors");
}

}  // namespace dsv4::cli
