/// The wide engine: float64 between the profile's rounding points, judged by bounds and never by bits. It
/// guards the reference engine, so it shares nothing with it: formulas, format tables, page code, slot
/// arithmetic and state handling are its own.
///
/// Profiles: all of docs/profiles.md; `exact` rounds and quantises nowhere, publishes float64 tensors (no
/// codes, scales or page bytes; query codes are the values themselves) and holds float64 rows, so its state
/// is no bytes. Other axis values: UsageError.
///
/// unrounded() holds, for tensors of floats the values before the last rounding, for codes x * 2^-e before
/// conversion, for scales the quotient max(amax, floor) / M; bound() how far another engine may be from them
/// (layer.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"
#include "wide/input_store.hpp"
#include "wide/layer.hpp"

namespace dsv4::wide {

class WideEngine : public Engine {
 public:
  WideEngine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
             std::shared_ptr<const HiddenSource> hidden);

  EngineInfo info() const override;
  void want(const TensorSet& wanted) override;
  void begin_step(const StepPlan& plan) override;
  void end_step(const StepPlan& plan) override;

  const Tensor* tensor(int layer, TensorId id) const override { return at(layer).tensor(id); }
  void set_tensor(int layer, TensorId id, Tensor value) override;
  const Tensor* unrounded(int layer, TensorId id) const override { return at(layer).unrounded(id); }
  const Tensor* bound(int layer, TensorId id) const override { return at(layer).bound(id); }

  std::span<const Write> writes(int layer) const override { return at(layer).writes(); }
  void apply_writes(int layer, std::span<const Write> rows) override;
  std::vector<HeldTable> held_tables() const override;
  std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const override;
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override;
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override;
  std::vector<StoredInput> stored_inputs(int layer) const override;
  void store_inputs(int layer, std::span<const StoredInput> inputs) override;

 private:
  Layer& at(int layer) { return *layers_.at(static_cast<std::size_t>(layer)); }
  const Layer& at(int layer) const { return *layers_.at(static_cast<std::size_t>(layer)); }
  void run(const StageCall& call);

  std::shared_ptr<const WeightSource> weights_;
  std::shared_ptr<const HiddenSource> hidden_;
  std::vector<std::unique_ptr<Layer>> layers_;
  InputStore inputs_;
  const StepPlan* plan_ = nullptr;  ///< of the step at hand
};

std::unique_ptr<Engine> make_wide_engine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                                         std::shared_ptr<const HiddenSource> hidden);

}  // namespace dsv4::wide
