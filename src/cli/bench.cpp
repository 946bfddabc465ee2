#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "cli/bench_hopper.hpp"
#include "cli/bench_meter.hpp"
#include "cli/bench_work.hpp"
#include "cli/command.hpp"
#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "oracle/fill.hpp"
#include "oracle/interrupt.hpp"
#include "reference/simd/isa.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter =
    R"(Every stage is timed in the same run as the peaks of the machine: peak, stage, peak. A sample whose two peaks differ by
more than 5% is thrown away and the step repeated; a stage without a good sample in the end makes the run fail. `x scalar` compares the time for one unit
of work with that of plain scalar loops (one multiply-add at a time, same bits) on few tokens.

Examples:
  dsv4-oracle bench                                      prefill of 2048 tokens, one v4-flash CSA layer
  dsv4-oracle bench --layer hca --tokens 512 --threads 1
  dsv4-oracle bench --decode 32 --context 4096           one token each for 32 requests
  dsv4-oracle bench --engine cuda --tokens 8192 --kernels
  dsv4-oracle bench --hopper                             the model of Hopper's tensor cores (docs/hopper.md 4)

On a GPU the time of a stage is that of its device work, replayed from a graph; the gaps in which the device waits for
the host are not in it.)";

constexpr double kPeakTolerance = 0.05;
constexpr int kWarmUpTokens = 16;
constexpr int kMoreRounds = 4;  // times `repeat`, while a stage has no good sample

struct BenchOptions {
  std::string engine = "reference";
  std::string model = "v4-flash";
  std::string layer = "csa";
  std::string profile = "canonical";
  int tokens = 2048;
  int decode = 0;
  int context = 4096;
  int repeat = 3;
  int baseline_tokens = 64;
  bool kernels = false;
  bool hopper = false;
  ComputeOptions compute;
};

struct Sample {
  double seconds = 0;
  std::vector<KernelSeconds> kernels;
  double peak = 0;  ///< units a second, of the FMA units or of copying: the mean of both sides
};

/// The best good sample of a stage, and how often it was thrown away.
struct StageResult {
  std::optional<Sample> best;
  int rejected = 0;
};
using Results = std::array<StageResult, kStageCount>;

bool agree(double a, double b) {
  return std::max(a, b) <= (1 + kPeakTolerance) * std::min(a, b);
}

std::string script(const BenchOptions& options, int tokens) {
  std::string text = fmt::format("name: bench\nmodel: {{preset: {}, layers: [{}]}}\nprofile: {}\nsteps:\n",
                                 options.model, options.layer, options.profile);
  if (options.decode == 0) {
    text += fmt::format("  - prefill: {{request: warm, tokens: {}}}\n  - free: warm\n",
                        std::min(tokens, kWarmUpTokens));
    for (int i = 0; i < options.repeat * kMoreRounds; ++i) {
      text += fmt::format("  - prefill: {{request: r{0}, tokens: {1}}}\n  - free: r{0}\n", i, tokens);
    }
    return text;
  }
  std::string requests;
  for (int i = 0; i < options.decode; ++i) {
    text += fmt::format("  - fill: {{request: r{}, tokens: {}}}\n", i, options.context);
    requests += fmt::format("{}r{}", i == 0 ? "" : ", ", i);
  }
  return text + fmt::format("  - decode: {{requests: [{}], repeat: {}}}\n", requests,
                            options.repeat * kMoreRounds + 1);
}

/// Runs the script; every timed step gives a sample for each stage.
class Bench {
 public:
  Bench(const BenchOptions& options, int tokens, bool with_peaks)
      : plan_(scenario::plan(scenario::parse_scenario(script(options, tokens), "bench"))),
        repeat_(options.repeat),
        with_peaks_(with_peaks) {
    const scenario::Scenario scenario = scenario::parse_scenario(script(options, tokens), "bench");
    engine_ = engine_factory(options.compute.engine)(
        options.engine, plan_.config, weights_of(scenario, plan_.config), hidden_of(scenario, plan_.config));
    meter_ = bench_meter(options.engine);  // behind the engine: it says that there is no device, and chooses one
    engine_->want({});
    wrap_stages();
  }

  /// False when interrupted.
  bool run() {
    bool warm = false;
    int rounds = 0;
    for (const StepPlan& step : plan_.steps) {
      if (rounds >= repeat_ && complete()) break;
      timed_ = warm && !step.rows.empty();
      engine_->begin_step(step);
      if (step.kind == StepKind::fill) oracle::apply_fill(*engine_, step);
      if (!step.rows.empty()) {
        if (timed_) step_ = &step;
        for (const Stage stage : execution_order(plan_.config.layers.front(), false))
          engine_->run_stage(step, 0, stage);
        rounds += timed_ ? 1 : 0;
        warm = true;
      }
      engine_->end_step(step);
      if (oracle::interrupted()) return false;
    }
    return true;
  }

  /// Every stage has a good sample.
  bool complete() const {
    return std::ranges::all_of(execution_order(plan_.config.layers.front(), false), [this](Stage stage) {
      return results_[static_cast<std::size_t>(stage)].best.has_value();
    });
  }
  const Results& results() const { return results_; }
  std::array<StageWork, kStageCount> work() const { return stage_work(plan_.config, *step_, 0); }
  const RunConfig& config() const { return plan_.config; }
  const BenchMeter& meter() const { return *meter_; }

 private:
  void wrap_stages() {
    for (std::size_t stage = 0; stage < kStageCount; ++stage) {
      StageFunction& entry = engine_->stages()[stage];
      if (!entry) continue;
      entry = [this, stage, inner = entry](const StageCall& call) {
        const bool peaks = timed_ && with_peaks_;
        const bool arithmetic = timed_ && stage_work(plan_.config, *step_, 0)[stage].flop > 0;
        const double before = peaks ? meter_->peak(arithmetic) : 1;
        if (!timed_) return inner(call);
        const StageSeconds time = meter_->run(inner, call);
        const double after = peaks ? meter_->peak(arithmetic) : 1;
        add(results_[stage], {time.seconds, time.kernels, (before + after) / 2}, agree(before, after));
      };
    }
  }

  static void add(StageResult& result, const Sample& sample, bool good) {
    if (!good) {
      ++result.rejected;
    } else if (!result.best || sample.seconds < result.best->seconds) {
      result.best = sample;
    }
  }

  std::unique_ptr<BenchMeter> meter_;
  RunPlan plan_;
  int repeat_;
  bool with_peaks_;
  std::unique_ptr<Engine> engine_;
  const StepPlan* step_ = nullptr;
  bool timed_ = false;
  Results results_;
};

/// Seconds for one flop of every arithmetic stage in plain scalar loops; 0 where not measured.
std::array<double, kStageCount> baseline(const BenchOptions& options) {
  std::array<double, kStageCount> seconds{};
  if (options.baseline_tokens == 0 || options.engine != "reference") return seconds;
  BenchOptions few = options;
  few.engine = "reference";
  few.repeat = 1;
  if (few.decode > 0) few.decode = std::min(few.decode, 2);
  const reference::Isa chosen = reference::selected_isa();
  const int threads = omp_get_max_threads();
  reference::select_isa(reference::Isa::scalar);
  omp_set_num_threads(1);
  Bench bench(few, std::min(options.tokens, options.baseline_tokens), false);
  bench.run();
  reference::select_isa(chosen);
  omp_set_num_threads(threads);
  const auto work = bench.work();
  for (std::size_t stage = 0; stage < kStageCount; ++stage) {
    const StageResult& result = bench.results()[stage];
    if (work[stage].flop > 0 && result.best) seconds[stage] = result.best->seconds / work[stage].flop;
  }
  return seconds;
}

void print_header(const BenchOptions& options, const BenchMeter& meter, bool json) {
  const std::string what =
      options.decode > 0 ? fmt::format("decode of {} requests at {} tokens", options.decode, options.context)
                         : fmt::format("prefill of {} tokens", options.tokens);
  if (json) {
    print_json_line({{"type", "bench"},
                     {"model", options.model},
                     {"layer", options.layer},
                     {"profile", options.profile},
                     {"what", what},
                     {"engine", options.engine},
                     {"machine", meter.machine()}});
    return;
  }
  fmt::print("{} {} layer, {}, engine {} on {}\n", options.model, options.layer, what, options.engine,
             meter.machine());
  fmt::print("{:<18} {:>10} {:>9} {:>12} {:>9} {:>9}\n", "stage", "ms", "GFLOP", "rate", "of peak",
             "x scalar");
}

struct Line {
  Stage stage;
  const StageResult& result;
  StageWork work;
  double scalar;  ///< seconds a flop
};

void print_kernels(const Sample& sample, const std::string& stage, bool json) {
  for (const KernelSeconds& kernel : sample.kernels) {
    if (json)
      print_json_line(
          {{"type", "bench_kernel"}, {"stage", stage}, {"kernel", kernel.name}, {"seconds", kernel.seconds}});
    else
      fmt::print("  {:<40} {:>10.4f} ms\n", kernel.name, kernel.seconds * 1e3);
  }
}

void print_line(const Line& line, bool kernels, bool json) {
  const std::string stage(name(line.stage));
  if (!line.result.best) {
    if (json)
      print_json_line({{"type", "bench_stage"}, {"stage", stage}, {"rejected", line.result.rejected}});
    else
      fmt::print("{:<18} rejected: the machine's peak moved by more than 5% around every sample\n", stage);
    return;
  }
  const Sample& sample = *line.result.best;
  const bool arithmetic = line.work.flop > 0;
  const double units = arithmetic ? line.work.flop : line.work.bytes;
  const double rate = units > 0 ? units / sample.seconds / 1e9 : 0;  // a stage may have nothing to do
  const double share = rate * 1e9 / sample.peak;
  const double times = line.scalar > 0 && units > 0 ? line.scalar * units / sample.seconds : 0;
  if (json) {
    print_json_line({{"type", "bench_stage"},
                     {"stage", stage},
                     {"seconds", sample.seconds},
                     {arithmetic ? "gflop" : "gbyte", units / 1e9},
                     {arithmetic ? "gflop_s" : "gbyte_s", rate},
                     {arithmetic ? "fma_peak_gflop_s" : "copy_peak_gbyte_s", sample.peak / 1e9},
                     {"share_of_peak", share},
                     {"times_scalar", times},
                     {"rejected", line.result.rejected}});
    if (kernels) print_kernels(sample, stage, json);
    return;
  }
  fmt::print("{:<18} {:>10.3f} {:>9} {:>12} {:>8.1f}% {:>9}\n", stage, sample.seconds * 1e3,
             arithmetic ? fmt::format("{:.3f}", units / 1e9) : "-",
             units > 0 ? fmt::format("{:.1f} {}/s", rate, arithmetic ? "GF" : "GB") : "-", share * 100,
             times > 0 ? fmt::format("{:.1f}", times) : "-");
  if (kernels) print_kernels(sample, stage, json);
}

int run(const BenchOptions& options, const Shared& shared) {
  if (options.hopper) return bench_hopper(shared.json);
  apply(options.compute);
  const std::array<double, kStageCount> scalar = baseline(options);
  Bench bench(options, options.tokens, true);
  print_header(options, bench.meter(), shared.json);
  if (!bench.run()) return kInterrupted;
  const auto work = bench.work();
  double seconds = 0;
  double flop = 0;
  double peak_seconds = 0;  // what the arithmetic would take at the peak measured around it
  bool whole = true;
  for (const Stage stage : execution_order(bench.config().layers.front(), false)) {
    const auto at = static_cast<std::size_t>(stage);
    const StageResult& result = bench.results()[at];
    print_line({stage, result, work[at], scalar[at]}, options.kernels, shared.json);
    whole &= result.best.has_value();
    if (!result.best) continue;
    seconds += result.best->seconds;
    flop += work[at].flop;
    if (work[at].flop > 0) peak_seconds += work[at].flop / result.best->peak;
  }
  if (shared.json) {
    print_json_line({{"type", "bench_total"},
                     {"seconds", seconds},
                     {"gflop", flop / 1e9},
                     {"gflop_s", flop / seconds / 1e9},
                     {"share_of_peak", peak_seconds / seconds},
                     {"complete", whole}});
  } else {
    fmt::print("{:<18} {:>10.3f} {:>9.3f} {:>12} {:>8.1f}%\n", "all", seconds * 1e3, flop / 1e9,
               fmt::format("{:.1f} GF/s", flop / seconds / 1e9), peak_seconds / seconds * 100);
  }
  if (!whole)
    fmt::print(stderr, "dsv4-oracle: the machine was not quiet enough to measure every stage; try again\n");
  return whole ? kDone : kFailed;
}

}  // namespace

void add_bench(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* const command =
      app.add_subcommand("bench", "Throughput of every stage beside the machine's peaks");
  command->footer(kFooter);
  command->add_option("--engine", options->engine, "reference, or cuda where it is part of the build")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--kernels", options->kernels, "Also every GPU kernel alone");
  command->add_flag("--hopper", options->hopper, "Instead: the model of Hopper's tensor cores, one core");
  command->add_option("--model", options->model, "Preset")->type_name("NAME")->capture_default_str();
  command->add_option("--layer", options->layer, "swa, csa or hca")
      ->check(CLI::IsMember({"swa", "csa", "hca"}))
      ->capture_default_str();
  command->add_option("--profile", options->profile, "Numeric profile")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Tokens of the prefill")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--decode", options->decode, "Requests that decode one token each, instead of a prefill")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--context", options->context, "Tokens before the decode step (synthetic caches)")
      ->check(CLI::Range(1, (1 << 20) - 64))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Samples of every stage")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--baseline-tokens", options->baseline_tokens, "Tokens of the scalar baseline; 0: none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  add_compute_options(*command, options->compute);
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
