/// A wide engine on seeded inputs and hand-made plans, and tensors to feed it with.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "model/error.hpp"
#include "support/plan_builder.hpp"
#include "wide/engine.hpp"

namespace dsv4::wide::test {

inline RunConfig tiny(std::vector<LayerKind> layers, std::string_view profile = "canonical") {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named(profile);
  config.layers = std::move(layers);
  config.seed = 11;
  return config;
}

/// Runs plans, and calls `before` and `after` around every stage.
class Run {
 public:
  explicit Run(const RunConfig& config)
      : engine(make_wide_engine(config, seeded_weights(config), seeded_hidden(config))) {}

  void step(const StepPlan& plan) {
    engine->begin_step(plan);
    if (plan.kind == StepKind::compute || plan.kind == StepKind::restore) {
      for (int layer = 0; layer < std::ssize(engine->config().layers); ++layer) {
        const LayerKind kind = engine->config().layers[static_cast<std::size_t>(layer)];
        for (const Stage stage : execution_order(kind, plan.kind == StepKind::restore)) {
          if (before) before(layer, stage);
          engine->run_stage(plan, layer, stage);
          if (after) after(layer, stage);
        }
      }
    }
    engine->end_step(plan);
  }

  std::vector<double> values(int layer, TensorId id) const {
    const Tensor* const tensor = engine->tensor(layer, id);
    if (tensor == nullptr) throw InternalError("not published: " + path(id));
    return decoded(*tensor);
  }
  void set(int layer, TensorId id, const std::function<double(std::int64_t)>& value) {
    Tensor tensor(DType::float64, engine->tensor(layer, id)->shape());
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.as<double>()[static_cast<std::size_t>(i)] = value(i);
    engine->set_tensor(layer, id, std::move(tensor));
  }

  std::unique_ptr<Engine> engine;
  std::function<void(int, Stage)> before;
  std::function<void(int, Stage)> after;
};

inline bool near(double a, double b, double relative = 1e-12) {
  return std::fabs(a - b) <= relative * std::max(std::fabs(a), std::fabs(b)) + 1e-300;
}

}  // namespace dsv4::wide::test
