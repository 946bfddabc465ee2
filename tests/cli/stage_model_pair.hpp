/// What tests of kernel models in the place of stages share: runs with and without one model, and inputs of
/// kernels put together without the code that does so in the program.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "arith/bf16.hpp"
#include "cli/model_kernels.hpp"
#include "reference/engine_harness.hpp"
#include "reference/linear.hpp"
#include "reference/stage_context.hpp"

namespace dsv4::reference::test {

/// The same steps on the profile's stages and on an engine of which the model of one stage is in place.
class Pair {
 public:
  Pair(RunConfig config, Stage stage) : plain(config), models(config) {
    weights = seeded_weights(models.plans.config);
    models.wrap([&](std::unique_ptr<Engine> engine) {
      return cli::with_model_kernels(std::move(engine), weights,
                                     [stage](const cli::StageModel& model) { return model.stage == stage; });
    });
    plain.admit("a");
    models.admit("a");
  }
  void step(int tokens) {
    plain.run(plain.plans.step({{0, tokens}}));
    plan = models.plans.step({{0, tokens}});
    models.run(plan);
  }
  const Tensor& before(TensorId id) { return *plain.engine().tensor(0, id); }
  const Tensor& after(TensorId id) { return *models.engine().tensor(0, id); }
  bool same(TensorId id) {
    return before(id).shape() == after(id).shape() &&
           std::ranges::equal(before(id).bytes(), after(id).bytes());
  }
  std::shared_ptr<const LayerWeights> layer() { return weights->layer(0); }
  const Geometry& geometry() { return models.plans.config.geometry; }

  Harness plain;
  Harness models;
  std::shared_ptr<const WeightSource> weights;
  StepPlan plan;
};

inline RunConfig config_of(LayerKind kind, const char* profile) {
  return tiny_config({kind}, profile);
}

inline std::vector<float> wide(std::span<const std::uint16_t> values) {
  std::vector<float> out;
  for (const std::uint16_t value : values) out.push_back(arith::bf16_to_f32(value));
  return out;
}

/// Rotation table by position, of the layer: [positions, 32 cosines then 32 sines].
inline std::vector<float> table(const Geometry& geometry, LayerKind kind, int positions) {
  const RopeAngleTable angles(geometry, kind, RopeTable::f32);
  std::vector<float> rows;
  for (int p = 0; p < positions; ++p) {
    const RopeAngles at = angles.at(p);
    rows.insert(rows.end(), at.cos.begin(), at.cos.end());
    rows.insert(rows.end(), at.sin.begin(), at.sin.end());
  }
  return rows;
}

inline std::vector<std::int64_t> positions_of(const StepPlan& plan) {
  std::vector<std::int64_t> positions;
  for (const Row& row : plan.rows) positions.push_back(row.position);
  return positions;
}

inline std::vector<std::uint16_t> product(const Pair& pair, const Matrix& weight, const Tensor& rows) {
  const Profile& profile = pair.models.plans.config.profile;
  std::vector<std::uint16_t> out(static_cast<std::size_t>(rows.dim(0) * weight.rows));
  const LinearInput input(profile, rows.as<std::uint16_t>().data(), rows.dim(0), weight.columns);
  linear(weight, all_outputs(weight), input.activations(), rows.dim(0), out.data(), weight.rows);
  return out;
}

template <class T>
bool holds(const Tensor& tensor, const std::vector<T>& expected) {
  return tensor.elements() == std::ssize(expected) &&
         std::memcmp(tensor.bytes().data(), expected.data(), tensor.bytes().size()) == 0;
}

/// Rows of a paged cache of the only request, by position or entry, one behind the other without padding.
inline std::vector<std::uint8_t> cache_rows(Pair& pair, Cache cache) {
  const std::vector<std::byte> rows = pair.models.engine().live_rows(0, cache, pair.models.live);
  std::vector<std::uint8_t> bytes(rows.size());
  std::memcpy(bytes.data(), rows.data(), rows.size());
  return bytes;
}

inline double relative(const Tensor& a, const Tensor& b) {
  double difference = 0;
  double size = 0;
  const bool half = a.dtype() == DType::bfloat16;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double x = half ? arith::bf16_to_f32(a.as<std::uint16_t>()[at]) : a.as<float>()[at];
    const double y = half ? arith::bf16_to_f32(b.as<std::uint16_t>()[at]) : b.as<float>()[at];
    difference += (x - y) * (x - y);
    size += x * x;
  }
  return std::sqrt(difference / size);
}

}  // namespace dsv4::reference::test
