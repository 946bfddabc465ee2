/// An engine that is changed from outside: every call goes to the engine inside, whose table, step plans and
/// events a change may wrap. Faults and kernel models are made of it. The engine inside knows nothing of it
/// and is reached through `Engine` alone, so a change works on every engine with byte-exact caches.
///
/// What a change does to a row of a cache it does to the list of writes too: an engine says what it wrote.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/engine.hpp"
#include "model/inputs.hpp"

namespace dsv4::oracle {

class EditedEngine : public Engine {
 public:
  using StageHook = std::function<void(const StageCall&)>;
  /// What a stage is given instead of a tensor; an empty tensor stands for the published one.
  using Disguise = std::function<std::optional<Tensor>(const StageCall&, const Tensor&)>;

  /// Without a change it does what the engine inside does.
  EditedEngine(std::unique_ptr<Engine> inside, std::shared_ptr<const WeightSource> weights);

  // What changes are made of.
  void before(Stage stage, StageHook hook);
  void after(Stage stage, StageHook hook);
  /// `stage` reads something else for tensor `id`; everybody else sees the published one.
  void disguise(Stage stage, TensorId id, Disguise disguise);
  /// Changes the plan of a step before the engine sees it; says whether it did.
  void on_plan(std::function<bool(StepPlan&)> change) { plan_changes_.push_back(std::move(change)); }
  /// Runs when a step is over, commits and releases done.
  void on_end(std::function<void(const StepPlan&)> hook) { end_hooks_.push_back(std::move(hook)); }
  /// An intermediate tensor that a change reads, wanted or not.
  void needs(TensorId id) { needed_.set(static_cast<std::size_t>(id)); }

  /// A tensor of this step; InternalError naming it if it is not published.
  const Tensor& input(int layer, TensorId id) const;
  /// Replaces a tensor; counts as fired if shape or bytes are others.
  void change(int layer, TensorId id, Tensor value);
  /// A row of a cache as in Write::bytes.
  std::vector<std::byte> row(int layer, Cache cache, std::int64_t slot) const;
  /// Puts another row where a stage wrote one, in memory and in the list of writes.
  void put(int layer, const Write& row);
  /// Takes a write back: memory holds `before` again and the list has no such write.
  void unwrite(int layer, const Write& write, std::span<const std::byte> before);
  /// Overwrites a row of which the list of writes knows nothing.
  void overwrite(int layer, Cache cache, std::int64_t slot, std::span<const std::byte> bytes);
  const LayerWeights& weights(int layer);
  LayerKind kind(int layer) const { return config_.layers.at(static_cast<std::size_t>(layer)); }
  void fire() { ++fired_; }

  /// How often something was changed.
  std::int64_t fired() const { return fired_; }

  // Engine.
  EngineInfo info() const override { return inside_->info(); }
  void want(const TensorSet& wanted) override;
  void begin_step(const StepPlan& plan) override;
  void end_step(const StepPlan& plan) override;
  const Tensor* tensor(int layer, TensorId id) const override { return inside_->tensor(layer, id); }
  void set_tensor(int layer, TensorId id, Tensor value) override;
  const Tensor* unrounded(int layer, TensorId id) const override { return inside_->unrounded(layer, id); }
  const Tensor* bound(int layer, TensorId id) const override { return inside_->bound(layer, id); }
  std::span<const Write> writes(int layer) const override;
  void apply_writes(int layer, std::span<const Write> rows) override { inside_->apply_writes(layer, rows); }
  std::vector<HeldTable> held_tables() const override { return inside_->held_tables(); }
  std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const override {
    return inside_->live_rows(layer, cache, live);
  }
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override {
    return inside_->read_row(layer, cache, row);
  }
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override {
    inside_->write_row(layer, cache, row, bytes);
  }
  std::vector<StoredInput> stored_inputs(int layer) const override { return inside_->stored_inputs(layer); }
  void store_inputs(int layer, std::span<const StoredInput> inputs) override {
    inside_->store_inputs(layer, inputs);
  }

 private:
  /// What replaces the writes of a stage to a slot.
  struct Edit {
    Stage stage;
    Cache cache;
    std::int64_t slot;
    std::optional<Write> row;  ///< empty: the write did not happen
  };
  void edit(int layer, Edit edit);
  /// Writes of a stage as the engine inside told them before tensors that they may be read from changed.
  using ToldWrites = std::map<Stage, std::vector<Write>>;

  std::unique_ptr<Engine> inside_;
  std::shared_ptr<const WeightSource> weight_source_;
  std::vector<std::shared_ptr<const LayerWeights>> weights_;
  std::vector<std::function<bool(StepPlan&)>> plan_changes_;
  std::vector<std::function<void(const StepPlan&)>> end_hooks_;
  TensorSet needed_;
  StepPlan plan_;  ///< of this step, as the engine inside has it
  std::vector<std::vector<Edit>> edits_;
  std::vector<ToldWrites> told_;  ///< of edited stages
  mutable std::vector<std::vector<Write>> writes_;
  std::int64_t fired_ = 0;
};

}  // namespace dsv4::oracle
