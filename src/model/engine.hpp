/// The seam between what computes and what drives, feeds, replaces, compares and dumps.
///
/// An engine is a table of stage functions over named tensors and byte-exact caches. Feeding, fault injection,
/// kernel models and stage benchmarks replace or call entries of the table; no stage knows of them.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/inputs.hpp"
#include "model/stage.hpp"
#include "model/step_plan.hpp"

namespace dsv4 {

class Engine;

/// What a stage function receives.
struct StageCall {
  Engine& engine;
  const StepPlan& plan;
  int layer;
  Stage stage;
};
using StageFunction = std::function<void(const StageCall&)>;
using StageTable = std::array<StageFunction, kStageCount>;

/// A set of tensors, by TensorId.
using TensorSet = std::bitset<256>;

/// One row that a stage wrote into a cache.
struct Write {
  Stage stage{};
  Cache cache{};
  std::int64_t slot = 0;      ///< page * page_size + offset, or base * R + p mod R, or base * banks + bank
  std::int32_t request = -1;  ///< owner
  std::int32_t index = -1;    ///< token position (window, state) or entry index (entries)
  std::vector<std::byte> bytes;  ///< the row: value bytes then scale bytes (584, 132 or 68), or kv then score as
                                 ///< f32; online: max, sum, kv
};

/// A stretch of a request's block table as an engine holds it.
struct HeldTable {
  std::int32_t request = -1;
  Pool pool{};
  std::int32_t first = 0;           ///< item of pages.front()
  std::vector<std::int32_t> pages;  ///< -1: none is held
};

/// A layer input that a chained run keeps, so that a restore step can recompute the token's rows.
struct StoredInput {
  std::uint64_t content = 0;         ///< content id of the token
  std::vector<std::uint16_t> row;    ///< bf16 bits, [dim]
};

struct EngineInfo {
  std::string name;         ///< "reference", "wide", "cuda"
  bool bit_exact = true;    ///< judged by bits against other bit-exact engines
  bool byte_state = true;   ///< caches are bytes: read_row, write_row and live_rows work
  bool graphs = false;      ///< supports capture and replay_graph
  std::string device;       ///< "cpu", or the device's name
};

class Engine {
 public:
  explicit Engine(RunConfig config) : config_(std::move(config)) {}
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const RunConfig& config() const { return config_; }
  virtual EngineInfo info() const = 0;

  /// The table; entries may be wrapped or replaced between steps.
  StageTable& stages() { return stages_; }

  /// Tensors of role `intermediate` may be left out unless wanted. Default: everything.
  virtual void want(const TensorSet& wanted) { wanted_ = wanted; }

  /// Starts a step: forgets the tensors and writes of the last one, applies `copies`. Throws SubjectError for a
  /// step kind that the engine has no mechanism for.
  virtual void begin_step(const StepPlan& plan) = 0;

  /// Runs one entry of the table. The caller walks execution_order() of each layer, layers ascending.
  void run_stage(const StepPlan& plan, int layer, Stage stage) {
    stages_[static_cast<std::size_t>(stage)](StageCall{*this, plan, layer, stage});
  }

  /// Ends the step: commits, releases, poisons.
  virtual void end_step(const StepPlan& plan) = 0;

  /// A tensor published in this step, or null. Valid until the next change of that tensor.
  virtual const Tensor* tensor(int layer, TensorId id) const = 0;
  /// Replaces a published tensor (feeding, faults); later stages read the new one.
  virtual void set_tensor(int layer, TensorId id, Tensor value) = 0;
  /// The float64 values before the last rounding of a tensor, same shape; wide engine only, else null.
  virtual const Tensor* unrounded(int /*layer*/, TensorId /*id*/) const { return nullptr; }
  /// A-priori bounds, float64, same shape as unrounded(): given the same stage inputs, a bit-exact engine's value
  /// before its last rounding differs from unrounded() by at most this much; wide engine only, else null.
  virtual const Tensor* bound(int /*layer*/, TensorId /*id*/) const { return nullptr; }

  /// Rows written so far in this step, in order. Overwriting a row twice gives two entries.
  virtual std::span<const Write> writes(int layer) const = 0;
  /// Puts rows into caches as if a stage had written them (feeding, fill, faults); not recorded in writes().
  virtual void apply_writes(int layer, std::span<const Write> rows) = 0;

  /// The block tables by which this step is computed, from the engine's own copy (on a device, where it lies there),
  /// between begin_step and the next one. Pools of which it keeps none are left out. Default: nothing is told.
  virtual std::vector<HeldTable> held_tables() const { return {}; }

  /// The live rows of a cache in logical order (docs/numerics.md 12.3 and 20): requests in admission order,
  /// positions or entries ascending, each row as in Write::bytes. `live` is that of the last plan.
  virtual std::vector<std::byte> live_rows(int layer, Cache cache, std::span<const LiveRequest> live) const = 0;

  /// Physical memory: a whole page (pitch included), or one state row when the state is a ring or online.
  virtual std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const = 0;
  virtual void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) = 0;

  /// Layer inputs kept for restore steps, by ascending content id, and their way back (checkpoints). Only chained
  /// runs keep any, for layers above the first.
  virtual std::vector<StoredInput> stored_inputs(int /*layer*/) const { return {}; }
  virtual void store_inputs(int /*layer*/, std::span<const StoredInput> /*inputs*/) {}

 protected:
  bool wanted(TensorId id) const {
    return dsv4::info(id).role != Role::intermediate || wanted_.test(static_cast<std::size_t>(id));
  }

  RunConfig config_;
  StageTable stages_;
  TensorSet wanted_ = TensorSet().set();
};

/// Makes an engine by name; only src/cli names concrete engines and hands this down.
using EngineFactory =
    std::function<std::unique_ptr<Engine>(const std::string& name, const RunConfig& config,
                                          std::shared_ptr<const WeightSource> weights,
                                          std::shared_ptr<const HiddenSource> hidden)>;

}  // namespace dsv4
