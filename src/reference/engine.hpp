/// The CPU reference engine: every stage of DeepSeek-V4 attention bit for bit as docs/numerics.md says, over
/// byte-exact caches. Its results do not depend on threads, chunks, batches or where pages lie.
#pragma once

#include <memory>
#include <vector>

#include "model/engine.hpp"

namespace dsv4::reference {

struct LayerState;
struct LayerStep;
class InputStore;
class StageContext;

class ReferenceEngine : public Engine {
 public:
  /// Throws UsageError for a profile or geometry that this engine cannot compute.
  ReferenceEngine(RunConfig config, std::shared_ptr<const WeightSource> weights,
                  std::shared_ptr<const HiddenSource> hidden);
  ~ReferenceEngine() override;

  EngineInfo info() const override;
  void begin_step(const StepPlan& plan) override;
  void end_step(const StepPlan& plan) override;

  const Tensor* tensor(int layer, TensorId id) const override;
  void set_tensor(int layer, TensorId id, Tensor value) override;

  std::span<const Write> writes(int layer) const override;
  void apply_writes(int layer, std::span<const Write> rows) override;

  std::vector<HeldTable> held_tables() const override;
  std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const override;
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override;
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override;

  std::vector<StoredInput> stored_inputs(int layer) const override;
  void store_inputs(int layer, std::span<const StoredInput> inputs) override;

 private:
  StageContext context(const StepPlan& plan, int layer);
  void commit_online(const StepPlan& plan);
  void keep_inputs(const StepPlan& plan);
  LayerState& layer_state(int layer);
  const LayerState& layer_state(int layer) const;

  std::shared_ptr<const WeightSource> weights_;
  std::shared_ptr<const HiddenSource> hidden_;
  std::vector<std::unique_ptr<LayerState>> layers_;
  std::vector<LayerStep> steps_;
  std::unique_ptr<InputStore> inputs_;  ///< chained runs
  const StepPlan* plan_ = nullptr;      ///< of the step at hand
};

std::unique_ptr<Engine> make_reference_engine(const RunConfig& config,
                                              std::shared_ptr<const WeightSource> weights,
                                              std::shared_ptr<const HiddenSource> hidden);

}  // namespace dsv4::reference
