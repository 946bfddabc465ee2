/// What the stage functions of the wide engine work on: one layer's caches, weights and the tensors of the
/// step.
///
/// Stages see compact matrices: one row for each batch row that is not padding (or each entry, or state row).
/// The layer spreads them over the published tensor, whose padding rows stay zero bytes, or -1.
///
/// Tensors set before their own stage runs are what the rest of that stage computes with (the stage's own
/// values are still published), so that a driver can feed the values between the roundings of one stage, too.
///
/// A published float has up to three forms: the tensor, its float64 values before the last rounding, and
/// their bound. For bf16 tensors and codes the bound is on another engine's float32 value before that
/// rounding; for float32 tensors it is on the published float32 value itself, whose own rounding is part of
/// the bound (where the profile rounds such a tensor to bf16, the values are the rounded ones and the bound
/// is the distance to the farthest bf16 value in reach).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/engine.hpp"
#include "wide/caches.hpp"
#include "wide/input_store.hpp"
#include "wide/quantise.hpp"
#include "wide/row_math.hpp"

namespace dsv4::wide {

class Layer {
 public:
  Layer(const RunConfig& config, int index);

  const RunConfig& config;
  const int index;
  const LayerKind kind;
  Caches caches;
  const Rope rope;
  std::shared_ptr<const LayerWeights> weights;  ///< held during a step

  const Geometry& geometry() const { return config.geometry; }
  bool exact() const { return config.profile.exact; }
  template <class Axis>
  Axis axis() const {
    return config.profile.get<Axis>();
  }

  /// The same for axes that choose rounding points and formats, of which `exact` has none.
  template <class Axis>
  Axis rounding() const {
    return exact() ? Axis{} : axis<Axis>();
  }

  /// Intermediates outside the set are not kept.
  void want(const TensorSet& wanted) { wanted_ = wanted; }

  /// Forgets the tensors and writes of the last step.
  void begin_step(const StepPlan& plan);

  /// Batch rows that are not padding, in order.
  std::span<const int> rows() const { return rows_; }
  std::int32_t position(std::size_t row) const { return positions_[row]; }  ///< of rows()[row]
  const RequestStep& step_of(const StepPlan& plan, std::size_t row) const {
    return plan.requests[steps_[row]];
  }
  /// Index into rows() of the first row of a request step.
  std::size_t first_row_of(std::size_t step) const { return first_rows_[step]; }

  /// A published tensor as float64, [first axis, rest]. Tensors whose first axis is `token` lose padding
  /// rows.
  Values input(TensorId id) const;
  /// An int32 tensor, padding rows included.
  std::span<const std::int32_t> integers(TensorId id) const;
  /// What FP8 linears read from the layer's input: hidden codes with their scales; in `exact` the hidden
  /// states.
  Values activations() const;
  /// Output of wq_a, wq_b, wkv, wo_b or indexer.wq_b (axes linear and activation_floor): the input is
  /// quantised and dequantised; in `exact` and with `linear: bf16` its values are used.
  Balls linear(Balls input, const Matrix& weights) const;
  /// The same from the layer's input, whose codes are published.
  Balls linear_of_input(const Matrix& weights) const;
  BlockFormat activation_format() const;

  /// Publishes floats at a rounding point and returns what later steps of the stage read. `tail`: shape
  /// behind the first axis.
  Balls publish_bf16(TensorId id, std::vector<std::int64_t> tail, Balls values);
  /// The same where the profile does not round: a float32 tensor.
  Balls publish_unrounded(TensorId id, std::vector<std::int64_t> tail, Balls values);
  Balls publish_row(TensorId id, std::vector<std::int64_t> tail, Balls values, bool rounded) {
    return rounded ? publish_bf16(id, std::move(tail), std::move(values))
                   : publish_unrounded(id, std::move(tail), std::move(values));
  }
  void publish_f32(TensorId id, std::vector<std::int64_t> tail, const Balls& values);
  /// Values that are already known in the tensor's format.
  void publish_copy(TensorId id, std::vector<std::int64_t> tail, const Values& values) {
    publish_copy(id, std::move(tail), values, info(id).dtype);
  }
  void publish_copy(TensorId id, std::vector<std::int64_t> tail, const Values& values, DType dtype);
  void publish_integers(TensorId id, std::vector<std::int64_t> shape, std::span<const std::int32_t> values);
  /// Codes and scales; scales as ue8m0 bytes, or as float32. Nothing in `exact`. Given codes and scales
  /// replace the dequantised values and scales that later steps of the stage read.
  void publish_codes(TensorId codes, TensorId scales, std::vector<std::int64_t> tail,
                     std::vector<std::int64_t> scale_tail, Quantised& quantised, bool fp4, bool f32_scales);
  void publish_bytes(TensorId id, const std::vector<std::vector<std::byte>>& rows);

  /// Writes a row into a cache and records it.
  void write(Stage stage, Cache cache, std::int64_t slot, std::int32_t request, std::int32_t position,
             std::vector<std::byte> bytes);
  /// Online state after a verify step: the bank of the last accepted row is copied to bank 0. No stage does
  /// this, so it is not among the writes.
  void commit_online(const RequestStep& step, std::int32_t accepted);

  const Tensor* tensor(TensorId id) const;
  const Tensor* unrounded(TensorId id) const;
  const Tensor* bound(TensorId id) const;
  void set_tensor(TensorId id, Tensor value);
  /// After a stage: what was given for it and has no value of its own (codes in `exact`) is not published.
  void drop_given(Stage stage);
  /// Stores the layer's inputs as they stand, for restore steps.
  void keep_inputs(InputStore& store) const;
  std::span<const Write> writes() const { return writes_; }

 private:
  struct Published {
    bool given = false;  ///< set from outside since the step began and not yet published over
    std::optional<Tensor> tensor;
    std::optional<Tensor> unrounded;
    std::optional<Tensor> bound;
  };
  Published& published(TensorId id);
  void store(TensorId id, Tensor value);
  /// Values set from outside before the stage published its own, compact; forgotten by the call.
  std::optional<Values> take_given(TensorId id);
  const Published* find(TensorId id) const;
  std::vector<std::int64_t> shape(bool by_token, std::int64_t rows, std::span<const std::int64_t> tail) const;
  /// Spreads compact float64 rows over a float64 tensor.
  Tensor spread(bool by_token, std::span<const std::int64_t> tail, const Values& values) const;
  std::int64_t target_row(bool by_token, std::int64_t row) const {
    return by_token ? rows_[static_cast<std::size_t>(row)] : row;
  }

  bool kept(TensorId id) const;

  TensorSet wanted_ = TensorSet().set();
  std::int64_t tokens_ = 0;  ///< batch rows, padding included
  std::vector<int> rows_;
  std::vector<std::int32_t> positions_;
  std::vector<std::uint64_t> contents_;
  std::vector<std::size_t> first_rows_;
  std::vector<std::size_t> steps_;  ///< index into StepPlan::requests
  std::vector<Published> published_;
  std::vector<Write> writes_;
};

/// bf16 codes as float64 values.
std::vector<double> bf16_values(std::span<const std::uint16_t> codes);

/// Any float tensor as float64 values, row-major.
std::vector<double> decoded(const Tensor& tensor);

}  // namespace dsv4::wide
