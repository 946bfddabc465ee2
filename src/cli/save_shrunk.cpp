#include "cli/save_shrunk.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/engines.hpp"
#include "cli/model_kernels.hpp"
#include "model/error.hpp"
#include "oracle/faults/catalogue.hpp"
#include "scenario/plan.hpp"
#include "scenario/write_yaml.hpp"

namespace dsv4::cli {
namespace {

std::string comment(const std::string& text) {
  std::string line = text;
  std::ranges::replace(line, '\n', ' ');
  return "# " + line + "\n";
}

}  // namespace

std::string command_of(const std::string& file, const oracle::TrialPair& pair, const std::string& options) {
  const std::string name = shell_quoted(file);
  if (pair.sequential)
    return fmt::format("dsv4-oracle replay {} --engine {}{}", name, pair.subject.engine, options);
  if (pair.subject.c4_state) {
    return fmt::format("dsv4-oracle shrink {} --pair {} --engine {}{}", name, pair.name, pair.subject.engine,
                       options);
  }
  // The side with byte-exact caches has the kernel models; replay gives them to its subject.
  const bool swapped =
      pair.subject.engine == "wide" && options.find("--model-kernels") != std::string::npos;
  return fmt::format("dsv4-oracle replay {} --engine {} --against {}{}{}", name,
                     (swapped ? pair.reference : pair.subject).engine,
                     (swapped ? pair.subject : pair.reference).engine, pair.feed == oracle::Feed::reference ? " --feed reference" : "",
                     options);
}

std::string size_of(const scenario::Scenario& scenario) {
  std::int64_t tokens = 0;
  const RunPlan plan = scenario::plan(scenario);
  for (const StepPlan& step : plan.steps) tokens += static_cast<std::int64_t>(step.rows.size());
  return fmt::format("{} step{}, {} row{}", plan.steps.size(), plan.steps.size() == 1 ? "" : "s", tokens,
                     tokens == 1 ? "" : "s");
}

std::string saved_text(const oracle::ShrunkFailure& failure, const oracle::TrialPair& pair,
                       const std::string& file, const std::string& origin, const std::string& options) {
  scenario::Scenario scenario = failure.shrunk.scenario;
  scenario.name.clear();  // the file's
  if (pair.sequential) scenario.expect.same_as = "sequential";
  return comment(failure.divergence.signature() + ": " + failure.divergence.sentence) +
         comment("Shrunk from " + origin +
                 (failure.shrunk.at_fixpoint ? "; nothing smaller shows it."
                                             : "; the time was over before it was smallest.")) +
         comment(command_of(file, pair, options)) + scenario::write_yaml(scenario);
}

void check_model_kernels(const oracle::TrialPair& pair) {
  if (!pair.sequential) return;
  throw UsageError(
      "--model-kernels: not with 'sequential': FlashMLA cuts a decode batch as a whole and has another kernel for "
      "chunks, so a request alone has other bits");
}

oracle::TrialTools trial_tools(const ComputeOptions& compute, const std::string& inject, bool model_kernels) {
  oracle::TrialTools tools{engine_factory(compute.engine), weights_of, hidden_of, {}, {}, {}};
  if (model_kernels) {
    tools.models = [](std::unique_ptr<Engine> engine, const std::shared_ptr<const WeightSource>& weights,
                      bool fed) {
      require_kernel_models(engine->config().profile);
      if (fed) check_feeding_kernel_models(engine->config());
      return with_model_kernels(std::move(engine), weights);
    };
    tools.models_rules = know_kernel_models;
  }
  if (!inject.empty()) {
    const auto injection = oracle::faults::parse_injection(inject);
    tools.fault = [injection](std::unique_ptr<Engine> engine,
                              const std::shared_ptr<const WeightSource>& weights) {
      return oracle::faults::inject(std::move(engine), weights, injection);
    };
  }
  return tools;
}

}  // namespace dsv4::cli
