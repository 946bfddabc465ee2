#include <fmt/format.h>

#include <memory>

#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "model/error.hpp"
#ifdef DSV4_HAS_CUDA
#include "cli/probe_record.hpp"
#endif

namespace dsv4::cli {
namespace {

constexpr const char* kFooter =
    R"(Every special function is run on all 2^32 inputs, every division on 2^30 pairs of four kinds, every matrix
instruction on a million outputs of each kind of data. The model (docs/hopper.md) has to return the same bits, on the
device and, for a sample, on the host. Without WGMMA the device is no Hopper: the rule that explains its mma.sync best
is reported.

Examples:
  dsv4-oracle probe
  dsv4-oracle probe --record evidence/

Exit codes: 0 the GPU conforms, 1 it does not, 4 there is none or the program was built without CUDA.)";

struct ProbeOptions {
  int device = 0;
  std::string record;
};

#ifdef DSV4_HAS_CUDA

void print_json(const gpu::probe::Report& report) {
  print_json_line({{"type", "probe"},
                   {"gpu", report.gpu},
                   {"compute", fmt::format("{}.{}", report.major, report.minor)},
                   {"driver", driver_version()},
                   {"cuda", report.driver_cuda}});
  for (const gpu::probe::Line& line : report.lines) {
    print_json_line({{"type", "probe_function"},
                     {"function", line.function},
                     {"inputs", line.inputs},
                     {"count", line.count},
                     {"mismatches", line.mismatches},
                     {"first", line.first}});
  }
  for (const gpu::probe::Fit& fit : report.fits) {
    print_json_line({{"type", "probe_fit"},
                     {"instruction", fit.instruction},
                     {"step", fit.step},
                     {"fraction_bits", fit.fraction_bits},
                     {"output_fraction_bits", fit.output_fraction_bits},
                     {"outputs", fit.outputs},
                     {"mismatches", fit.mismatches},
                     {"rivals", fit.rivals}});
  }
  print_json_line({{"type", "probe_result"}, {"conforms", report.conforms()}});
}

void print_text(const gpu::probe::Report& report) {
  fmt::print("{}, compute {}.{}, driver {}\n", report.gpu, report.major, report.minor, driver_version());
  fmt::print("{:<24} {:<42} {:>11} {:>11}\n", "function", "inputs", "count", "mismatches");
  std::uint64_t differing = 0;
  for (const gpu::probe::Line& line : report.lines) {
    fmt::print("{:<24} {:<42} {:>11} {:>11}\n", line.function, line.inputs, line.count, line.mismatches);
    if (!line.first.empty()) fmt::print("    first: {}\n", line.first);
    differing += line.mismatches != 0 ? 1U : 0U;
  }
  for (const gpu::probe::Fit& fit : report.fits) {
    fmt::print("{:<24} best rule: {}, F {}, OF {}: {} of {} outputs differ, {} other rules do as well\n",
               fit.instruction,
               fit.step == 0 ? "composed of fp16 steps" : fmt::format("K {} a step", fit.step),
               fit.fraction_bits, fit.output_fraction_bits, fit.mismatches, fit.outputs, fit.rivals);
  }
  if (report.conforms()) {
    fmt::print("conforms: this GPU computes what docs/hopper.md says, 0 mismatches\n");
  } else if (!report.has_wgmma) {
    fmt::print("does not conform: no WGMMA, so this is no Hopper; {} of {} other lines differ\n", differing,
               report.lines.size());
  } else {
    fmt::print("does not conform: {} of {} lines differ\n", differing, report.lines.size());
  }
}

int run(const ProbeOptions& options, const Shared& shared) {
  const gpu::probe::Report report = gpu::probe::run(options.device, !options.record.empty());
  if (!options.record.empty()) write_recorded(report, options.record);
  if (shared.json)
    print_json(report);
  else
    print_text(report);
  return report.conforms() ? kDone : kFailed;
}

#else

int run(const ProbeOptions&, const Shared&) {
  throw SubjectError("probe: this program was built without CUDA");
}

#endif

}  // namespace

void add_probe(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* const command = app.add_subcommand(
      "probe",
      "Whether this GPU's special functions and tensor cores compute what the model says, bit for bit");
  command->footer(kFooter);
  command->add_option("--device", options->device, "Number of the GPU")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  command
      ->add_option("--record", options->record,
                   "Write inputs and outputs of some thousand cases into this folder")
      ->type_name("FOLDER");
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
