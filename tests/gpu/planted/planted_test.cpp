// Faults planted in copies of CUDA kernels: found against the reference, explained, shrunk.
// gpu_planted SCENARIOS: one line a fault; 77 without a device, 1 if one of them is missed.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "gpu/engine.hpp"
#include "model/error.hpp"
#include "model/seeded.hpp"
#include "oracle/explain/explain.hpp"
#include "oracle/fuzz.hpp"
#include "oracle/runner.hpp"
#include "oracle/trial.hpp"
#include "plant.hpp"
#include "reference/engine.hpp"
#include "scenario/plan.hpp"

namespace {

using namespace dsv4;
namespace explain = oracle::explain;

struct Plant {
  const char* kernel;
  const char* stage;  ///< where the run must leave the reference
  const char* fault;  ///< what must be named
};
constexpr std::array kPlants{
    Plant{"compress_pool", "compress.pool", "pool-halves-swapped"},
    Plant{"indexer_score", "indexer.score", "score-relu-after-sum"},
    Plant{"output_project", "output.project", "output-rotated-forward"},
};
constexpr std::size_t kMostSteps = 3;  // of a shrunk scenario

EngineFactory factory_with(const Plant& plant) {
  return
      [plant](const std::string& name, const RunConfig& config, std::shared_ptr<const WeightSource> weights,
              std::shared_ptr<const HiddenSource> hidden) -> std::unique_ptr<Engine> {
        if (name != "cuda")
          return reference::make_reference_engine(config, std::move(weights), std::move(hidden));
        auto engine = gpu::make_cuda_engine(config, std::move(weights), std::move(hidden));
        gpu::plant(*engine, plant.kernel);
        return engine;
      };
}

explain::Explanation explained(const scenario::Scenario& scenario, const EngineFactory& factory) {
  explain::Bench bench;
  bench.profile = scenario.profile;
  bench.plan = [scenario](const Profile& wanted) {
    scenario::Scenario own = scenario;
    own.profile = wanted;
    RunPlan plan = scenario::plan(own);
    oracle::run_graphs_as_steps(plan);
    return plan;
  };
  RunPlan plan = bench.plan(scenario.profile);
  bench.engine = factory;
  bench.weights = seeded_weights(plan.config);
  bench.hidden = seeded_hidden(plan.config);
  auto engine = factory("cuda", plan.config, bench.weights, bench.hidden);
  const auto foreign = explain::foreign_engine(std::move(engine), std::move(plan), true);
  return explain::explain(bench, *foreign);
}

/// One fault from the script to its name and its smallest scenario; true if all is as it must be.
bool follow(const Plant& plant, const scenario::Scenario& scenario) {
  const EngineFactory factory = factory_with(plant);
  oracle::Trial trial(oracle::trial_pair("reference:cuda"), oracle::seeded_tools(factory));
  const std::optional<oracle::Divergence> found = trial.run(scenario);
  if (!found) {
    fmt::print("{}: not found\n", plant.kernel);
    return false;
  }
  const explain::Explanation explanation = explained(scenario, factory);
  const auto named = explanation.reproducing();
  const bool right =
      std::ranges::any_of(named, [&](const auto* one) { return one->candidate.family == plant.fault; });
  const oracle::ShrunkFailure failure = oracle::shrink_failure(trial, scenario, *found, 60);
  const std::size_t steps = scenario::plan(failure.shrunk.scenario).steps.size();
  fmt::print("{}: {} (step {}); {}\n  explained as:", plant.kernel, found->signature(), found->step,
             explanation.sentence);
  for (const auto* one : named) fmt::print(" {}", one->candidate.name);
  fmt::print("\n  shrunk from {} steps to {}, {} scenarios tried\n", scenario::plan(scenario).steps.size(),
             steps, failure.shrunk.tried);
  return found->stage == plant.stage && right && steps <= kMostSteps &&
         failure.divergence.same_signature(*found);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (gpu::cuda_devices().empty()) {
    fmt::print("no CUDA device: skipped\n");
    return 77;
  }
  bool whole = true;
  for (const Plant& plant : kPlants) {
    try {
      const scenario::Scenario scenario = scenario::load_scenario(std::string(argv[1]) + "/mixed-batch.yaml");
      whole &= follow(plant, scenario);
    } catch (const std::exception& error) {
      fmt::print("{}: {}\n", plant.kernel, error.what());
      whole = false;
    }
  }
  return whole ? EXIT_SUCCESS : EXIT_FAILURE;
}
