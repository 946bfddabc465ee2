/// Small runs on the reference engine for the drivers' tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/seeded.hpp"
#include "oracle/runner.hpp"
#include "reference/engine.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::test {

inline RunPlan plan_of(const std::string& layers, const std::string& steps, const std::string& more = "") {
  const std::string text =
      "model: {preset: tiny, layers: [" + layers + "]" + more + "}\nseed: 11\nsteps:\n" + steps;
  return scenario::plan(scenario::parse_scenario(text, "test.yaml"));
}

inline std::unique_ptr<Engine> engine_of(const RunPlan& plan) {
  return reference::make_reference_engine(plan.config, seeded_weights(plan.config),
                                          seeded_hidden(plan.config));
}

inline EngineFactory reference_factory() {
  return [](const std::string&, const RunConfig& config, std::shared_ptr<const WeightSource> weights,
            std::shared_ptr<const HiddenSource> hidden) {
    return reference::make_reference_engine(config, std::move(weights), std::move(hidden));
  };
}

inline std::vector<StepObservation> run_all(Engine& engine, const RunPlan& plan, std::size_t first = 0) {
  oracle::Runner runner(engine, oracle::Selection{});
  std::vector<StepObservation> all;
  for (std::size_t step = first; step < plan.steps.size(); ++step)
    all.push_back(runner.run(plan.steps[step]));
  return all;
}

/// Wraps a stage: runs it, then changes the exponent of element 0 of a bf16 tensor that it published.
inline void break_stage(Engine& engine, Stage stage, TensorId id) {
  StageFunction& entry = engine.stages()[static_cast<std::size_t>(stage)];
  entry = [inner = entry, id](const StageCall& call) {
    inner(call);
    Tensor changed = *call.engine.tensor(call.layer, id);
    changed.bytes()[1] ^= std::byte{1};
    call.engine.set_tensor(call.layer, id, std::move(changed));
  };
}

}  // namespace dsv4::test
