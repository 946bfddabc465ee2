#include "cli/engines.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "io/hidden_file.hpp"
#include "io/weight_files.hpp"
#include "model/error.hpp"
#include "model/seeded.hpp"
#include "reference/engine.hpp"
#include "wide/engine.hpp"
#ifdef DSV4_HAS_CUDA
#include "gpu/engine.hpp"
#endif

namespace dsv4::cli {
namespace {

using Maker = std::unique_ptr<Engine> (*)(const RunConfig&, std::shared_ptr<const WeightSource>,
                                          std::shared_ptr<const HiddenSource>, const EngineOptions&);

struct EngineRow {
  const char* name;
  Maker make;  ///< null: known, but not part of this build
  bool has_options = false;
};

constexpr std::array kEngines{
    EngineRow{"reference",
              [](const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                 std::shared_ptr<const HiddenSource> hidden, const EngineOptions&) {
                return reference::make_reference_engine(config, std::move(weights), std::move(hidden));
              }},
    EngineRow{"wide",
              [](const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                 std::shared_ptr<const HiddenSource> hidden, const EngineOptions&) {
                return wide::make_wide_engine(config, std::move(weights), std::move(hidden));
              }},
#ifdef DSV4_HAS_CUDA
    EngineRow{"cuda",
              [](const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                 std::shared_ptr<const HiddenSource> hidden, const EngineOptions& options) {
                return gpu::make_cuda_engine(config, std::move(weights), std::move(hidden),
                                             {options.device, options.graphs});
              },
              true},
#else
    EngineRow{"cuda", nullptr, true},
#endif
};

const EngineRow& row(const std::string& name) {
  for (const EngineRow& engine : kEngines) {
    if (name != engine.name) continue;
    if (engine.make == nullptr) {
      throw SubjectError("engine '" + name +
                         "' is not part of this build (it was configured without a CUDA engine)");
    }
    return engine;
  }
  std::string known;
  for (const std::string& engine : engine_names()) known += (known.empty() ? "" : ", ") + engine;
  throw UsageError("unknown engine '" + name + "' (engines of this build: " + known + ")");
}

}  // namespace

EngineFactory engine_factory(const EngineOptions& options) {
  return [options](const std::string& name, const RunConfig& config,
                   std::shared_ptr<const WeightSource> weights, std::shared_ptr<const HiddenSource> hidden) {
    return row(name).make(config, std::move(weights), std::move(hidden), options);
  };
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EngineRow& engine : kEngines) {
    if (engine.make != nullptr) names.emplace_back(engine.name);
  }
  return names;
}

void check_engine_name(const std::string& name) {
  row(name);
}

void check_engine_options(const EngineOptions& options, const std::vector<std::string>& names) {
  if (options.device == 0 && !options.graphs) return;
  for (const EngineRow& engine : kEngines) {
    if (engine.has_options && std::ranges::find(names, engine.name) != names.end()) return;
  }
  throw UsageError("--device and --graph are for the engine 'cuda', which does not take part here");
}

std::vector<std::string> device_names() {
#ifdef DSV4_HAS_CUDA
  return gpu::cuda_devices();
#else
  return {};
#endif
}

std::shared_ptr<const WeightSource> weights_of(const scenario::Scenario& scenario, const RunConfig& config) {
  if (scenario.weights_paths.empty()) return seeded_weights(config);
  return io::file_weights(config, scenario.weights_paths, scenario.model.checkpoint_layers);
}

std::shared_ptr<const HiddenSource> hidden_of(const scenario::Scenario& scenario, const RunConfig& config) {
  if (scenario.hidden_path.empty()) return seeded_hidden(config);
  return io::file_hidden(config, scenario.hidden_path);
}

}  // namespace dsv4::cli
