/// What every stage function of the reference engine works on: the plan's rows, the layer's weights, caches
/// and published tensors. The stages' own files hold the arithmetic order; this one holds the conventions
/// that they share (docs/dump-format.md): padding rows, intermediates that nobody wants, the record of
/// writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/engine.hpp"
#include "reference/input_store.hpp"
#include "reference/layer_caches.hpp"
#include "reference/linear.hpp"
#include "reference/rope.hpp"
#include "reference/slots.hpp"

namespace dsv4::reference {

/// What survives a step, for one layer.
struct LayerState {
  LayerState(const RunConfig& config, int layer);

  LayerKind kind;
  LayerCaches caches;
  RopeAngleTable rope;
  std::shared_ptr<const LayerWeights> weights;  ///< made on first use
};

/// What a step makes, for one layer.
struct LayerStep {
  std::vector<std::optional<Tensor>> tensors;  ///< by TensorId
  std::vector<Write> writes;
};

class StageContext {
 public:
  const RunConfig& config;
  const StepPlan& plan;
  int layer;
  LayerState& state;
  std::vector<LayerStep>& steps;  ///< of all layers
  const TensorSet& wanted_intermediates;
  const HiddenSource& hidden_source;
  const InputStore& inputs;

  LayerKind kind() const { return state.kind; }
  const Geometry& geometry() const { return config.geometry; }
  const Profile& profile() const { return config.profile; }
  const LayerWeights& weights() const { return *state.weights; }

  /// Batch rows of the step, padding included.
  std::int64_t tokens() const { return std::ssize(plan.rows); }
  bool padding(std::int64_t token) const { return plan.rows[static_cast<std::size_t>(token)].request < 0; }
  std::int32_t position(std::int64_t token) const {
    return plan.rows[static_cast<std::size_t>(token)].position;
  }

  Slots slots(const RequestStep& request) const { return {config, layer, request}; }

  bool wanted(TensorId id) const {
    return info(id).role != Role::intermediate || wanted_intermediates.test(static_cast<std::size_t>(id));
  }

  /// A tensor that an earlier stage of this step published; InternalError naming it if it is missing or not
  /// of the dtype's element width.
  const Tensor& input(TensorId id) const { return input(layer, id); }
  const Tensor& input(int of_layer, TensorId id) const;

  /// Publishes a tensor; one whose first axis is `token` gets its padding rows set to zero bytes, or -1 for
  /// int32. Intermediates that nobody wants are dropped.
  void publish(TensorId id, Tensor tensor);

  /// Writes a row into a cache and records it.
  void write(Stage stage, Cache cache, std::int64_t slot, std::int32_t request, std::int32_t index,
             std::span<const std::byte> row);
};

/// `rows` of bf16, quantised in blocks of 128 along each row: what FP8 linears read (docs/numerics.md 20).
struct QuantizedRows {
  ZeroedArray<std::uint8_t> codes;   ///< [rows, columns]
  ZeroedArray<std::uint8_t> scales;  ///< [rows, ceil(columns / 128)]
};
QuantizedRows quantize_rows(const Profile& profile, const std::uint16_t* rows, std::int64_t count,
                            std::int64_t columns);
/// The same of f32 rows (axis out_rotation).
QuantizedRows quantize_rows(const Profile& profile, const float* rows, std::int64_t count,
                            std::int64_t columns);

/// Input of an FP8 linear from bf16 rows, by the axis `linear`: codes with scales, or the rows themselves,
/// which must outlive this.
class LinearInput {
 public:
  LinearInput(const Profile& profile, const std::uint16_t* rows, std::int64_t count, std::int64_t columns);
  LinearInput(const LinearInput&) = delete;
  LinearInput& operator=(const LinearInput&) = delete;
  const Activations& activations() const { return activations_; }

 private:
  QuantizedRows quantized_;
  Activations activations_;
};

}  // namespace dsv4::reference
