// fault_matrix [--engine NAME] [--only TEXT] [--scenarios FOLDER] [--explain yes]: prints the matrix, one line a
// fault; exit code 1 if one is not found, or not where it should be, 77 if the engine cannot run here. With
// --explain the matrix says what every fault is explained as, and fails if one is put down to another.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "faults/explained.hpp"
#include "faults/matrix.hpp"
#include "model/error.hpp"
#include "reference/engine.hpp"
#ifdef DSV4_HAS_CUDA
#include "gpu/engine.hpp"
#endif

namespace dsv4::test {
namespace {

struct Options {
  std::string engine = "reference";
  std::string only;
  std::string scenarios = "tests/faults/scenarios";
  std::string explain;
};

namespace faults = oracle::faults;

std::unique_ptr<Engine> make_engine(const std::string& name, const RunConfig& config,
                                    std::shared_ptr<const WeightSource> weights,
                                    std::shared_ptr<const HiddenSource> hidden) {
  if (name == "reference")
    return reference::make_reference_engine(config, std::move(weights), std::move(hidden));
#ifdef DSV4_HAS_CUDA
  if (name == "cuda") return gpu::make_cuda_engine(config, std::move(weights), std::move(hidden));
#endif
  throw SubjectError("engine '" + name + "' is not part of this build");
}

class Table {
 public:
  explicit Table(const Options& options)
      : options_(options), matrix_(options.scenarios, options.engine, make_engine) {}

  int run() {
    if (!options_.explain.empty()) return explain_all();
    fmt::print("{:<48} {:<10} {:<20} {:<17} {:<17} {}\n", "fault", "engine", "smallest scenario",
               "stage expected", "stage reported", "first report");
    for (const Case& one : fault_cases()) fault(one);
    for (const Case& one : bit_flip_cases()) fault(one);
    for (const Case& one : control_cases()) control(one);
    // The same rotation left out on both sides changes bytes and leaves the scores but for quantisation:
    // codes of query and key are off by at most 2^-4 each. Left out on one side it leaves nothing.
    scores("hadamard-dropped-on-both", 0, 0x1p-3);
    scores("hadamard-dropped-on-key", 0.5, 1e9);
    for (const std::string& scenario : scenario_names()) {
      quiet("without a fault", scenario, &Matrix::run_clean);
      quiet("faults without a change", scenario, &Matrix::run_unchanged);
    }
    fmt::print("{} lines, {} wrong\n", lines_, wrong_);
    return wrong_ > 0 || lines_ == 0 ? 1 : 0;
  }

 private:
  /// Of the 30 mutations at least 28 must be named, by every fault that stands for one.
  int explain_all() {
    fmt::print("{:<48} {:<10} {:<20} {:<17} {:<17} {}\n", "fault", "engine", "smallest scenario", "stage expected",
               "stage reported", "explained as");
    std::map<std::string, bool> named;
    for (const Case& one : fault_cases()) {
      if (!chosen(one.injection)) continue;
      const Explained result = test::explained(options_.scenarios, options_.engine, make_engine, one);
      const faults::FaultInfo* const fault = faults::parse_injection(one.injection).fault;
      if (fault == nullptr) {  // a bit
        explained_line(one, one.expected, matrix_.run_fault(one).stage, result, !result.certain);
        continue;
      }
      if (!fault->number.empty()) {
        bool& all = named.try_emplace(std::string(fault->number), true).first->second;
        all = all && result.named;
      }
      const bool smallest = fault->scenario == one.scenario && one.injection.find('=') == std::string::npos;
      const bool alike = !smallest || result.alike == fault->alike;
      explained_line(one, one.expected, matrix_.run_fault(one).stage, result,
                     result.named && alike && !result.wrong);
    }
    for (const Case& one : control_cases()) {
      if (!chosen(one.injection)) continue;
      const Explained result = test::explained(options_.scenarios, options_.engine, make_engine, one);
      explained_line(one, "no fault", "no fault", result, result.named && !result.wrong);
    }
    for (const Case& one : bit_flip_cases()) {
      if (!chosen(one.injection)) continue;
      const Explained result = test::explained(options_.scenarios, options_.engine, make_engine, one);
      explained_line(one, one.expected, matrix_.run_fault(one).stage, result, !result.certain);
    }
    const auto count = std::ranges::count_if(named, [](const auto& one) { return one.second; });
    fmt::print("{} of {} mutations are named; {} lines, {} wrong\n", count, named.size(), lines_, wrong_);
    return wrong_ > 0 || lines_ == 0 || (options_.only.empty() && count < 28) ? 1 : 0;
  }
  void explained_line(const Case& one, const std::string& expected, const std::string& reported,
                      const Explained& result, bool good) {
    line(one.injection, one, expected, reported, good ? result.as : result.as + "; " + result.sentence, good);
  }
  void line(const std::string& what, const Case& one, const std::string& expected,
            const std::string& reported, const std::string& detail, bool good) {
    ++lines_;
    wrong_ += good ? 0 : 1;
    fmt::print("{:<48} {:<10} {:<20} {:<17} {:<17} {}{}\n", what, options_.engine, one.scenario, expected,
               reported, good ? "" : "WRONG: ", detail);
    std::fflush(stdout);
  }
  bool chosen(const std::string& text) const { return text.find(options_.only) != std::string::npos; }

  void fault(const Case& one) {
    if (!chosen(one.injection)) return;
    try {
      const Report report = matrix_.run_fault(one);
      const std::string detail = report.fired == 0 ? "it changed nothing" : report.detail;
      line(
          one.injection, one, one.expected, report.stage.empty() ? "-" : report.stage, detail,
          report.stage == one.expected && report.fired > 0 && detail.find("downstream") == std::string::npos);
    } catch (const InternalError& error) {
      line(one.injection, one, one.expected, "-", error.what(), false);
    }
  }
  void control(const Case& one) {
    if (!chosen(one.injection)) return;
    std::string seen;
    const std::string problem = matrix_.run_control(one, seen);
    line(one.injection, one, "no fault", problem.empty() ? "no fault" : "-", problem.empty() ? seen : problem,
         problem.empty());
  }
  void scores(const std::string& injection, double least, double most) {
    if (!chosen(injection)) return;
    const Case one{injection, "csa-48", ""};
    const double error = matrix_.score_error(one);
    line(injection, one, "score error", fmt::format("{:.3f}", error),
         fmt::format("from {} to {}", least, most), error > least && error < most);
  }
  void quiet(const std::string& what, const std::string& scenario,
             std::string (Matrix::*check)(const std::string&)) {
    if (!chosen(what)) return;
    const std::string problem = (matrix_.*check)(scenario);
    line(what, {what, scenario, ""}, "-", problem.empty() ? "-" : problem, "", problem.empty());
  }

  Options options_;
  Matrix matrix_;
  int lines_ = 0;
  int wrong_ = 0;
};

Options parsed(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = arguments[i];
    std::string* const value = key == "--engine"      ? &options.engine
                               : key == "--only"      ? &options.only
                               : key == "--scenarios" ? &options.scenarios
                               : key == "--explain"   ? &options.explain
                                                      : nullptr;
    if (value == nullptr) throw UsageError("unknown option " + key);
    *value = arguments[i + 1];
  }
  if (count % 2 == 0) throw UsageError("an option without its value");
  return options;
}

}  // namespace
}  // namespace dsv4::test

int main(int count, char** arguments) {
  try {
    return dsv4::test::Table(dsv4::test::parsed(count, arguments)).run();
  } catch (const dsv4::SubjectError& error) {
    fmt::print("{}\n", error.what());
    return 77;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
