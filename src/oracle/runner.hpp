/// Walks a plan on one engine and gathers what each step published.
///
/// The order is the contract between a driver and an engine: begin_step, then for each layer ascending the
/// stages of execution_order(), then end_step. Synthetic rows of a fill step go in between begin and end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/write_set.hpp"
#include "model/observation.hpp"
#include "oracle/lifetime/checker.hpp"
#include "oracle/selection.hpp"
#include "oracle/times.hpp"

namespace dsv4::oracle {

/// Called around every stage of every layer; either may be empty.
struct StageHooks {
  std::function<void(int layer, Stage stage)> before;
  std::function<void(int layer, Stage stage)> after;
};

/// Makes graph steps plain steps of the same rows: for an engine without graphs whose results are held against
/// those of one with graphs.
void run_graphs_as_steps(RunPlan& plan);

/// Tables of `/steps/NNNNNN/batch`; padding rows are -1.
BatchTables batch_tables(const RunConfig& config, const StepPlan& plan);

/// Digest of live rows as `/state/NNNNNN/layer_LL/<cache>` states it; f32 NaN of compressor state is
/// canonicalised first (docs/numerics.md 1 and 20).
std::string live_state_digest(Cache cache, std::vector<std::byte> rows);

/// Whole caches of a layer under their catalogue names: pages as [page, byte], state as [row, channel].
std::map<std::string, Tensor> cache_snapshots(const Engine& engine, int layer);

/// The plan's event as JSON; a fill is marked `"synthetic": true`.
std::string marked_event(const StepPlan& plan);

class Runner {
 public:
  /// The engine and the selection must outlive the runner.
  Runner(Engine& engine, Selection selection);
  ~Runner();

  /// Runs one step. The observation holds what the selection asks for; steps outside its range compute all
  /// the same and observe their batch only.
  StepObservation run(const StepPlan& plan, const StageHooks& hooks = {});

  /// Gathers tensors when all stages of a step have run, not after each one, so that an engine's copies to the host
  /// and its computing overlap. For runs in which no entry of the stage table changes a tensor of another stage.
  void gather_late() { gather_late_ = true; }

  /// From now on compares all cache memory before and after every step with what the step may change.
  void check_writes();
  /// From now on checks what every step reads, writes and leaves behind against a shadow of the caches.
  void check_lifetimes();
  /// Findings of the last step's checks, also of a step that broke off; empty when all is well.
  const std::vector<compare::Finding>& write_findings() const { return write_findings_; }
  /// A step that another run has done (before a checkpoint), in order from step 0.
  void skip(const StepPlan& plan);
  /// What the last step had published when its engine threw; empty after a step that ended.
  std::optional<StepObservation>& broken_off() { return broken_off_; }

  /// Puts rows over those that a stage wrote (feeding), to be called from a hook.
  void replace_rows(int layer, std::span<const Write> rows);

  Engine& engine() { return engine_; }
  const Selection& selection() const { return selection_; }
  const EngineTimes& times() const { return times_; }

 private:
  void walk(const StepPlan& plan, const StageHooks& hooks, StepObservation& observation);
  std::vector<compare::Finding> findings_until_now(const StepPlan& plan);
  void check_layer(const StepPlan& plan, int layer, std::span<const Write> writes);
  /// Where tensors are gathered at the end of a step: those of a step that has none.
  void gather_broken_off(const StepPlan& plan, StepObservation& observation) const;
  void gather_stage(int layer, Stage stage, LayerObservation& observation) const;
  void gather_state(const StepPlan& plan, int layer, LayerObservation& observation) const;

  Engine& engine_;
  Selection selection_;
  bool gather_late_ = false;
  EngineTimes times_;
  std::unique_ptr<compare::WriteSetChecker> checker_;
  PageLedger ledger_;
  std::unique_ptr<LifetimeChecker> lifetimes_;
  std::vector<bool> layers_checked_;  ///< of this step
  std::vector<compare::Finding> write_findings_;
  std::optional<StepObservation> broken_off_;
};

/// A plan on an engine as a source of observations.
class LiveSource : public ObservationSource {
 public:
  /// `plan`, `runner` must outlive the source. Steps before `first` are taken as done (resume), so checks of the
  /// runner are asked for before.
  LiveSource(Runner& runner, const RunPlan& plan, std::string scenario, std::size_t first = 0);

  const SourceInfo& info() const override { return info_; }
  std::optional<StepObservation> next() override;
  /// What dumps and reports call the engine, where its stages are not its own.
  void name_engine(std::string name) { info_.engine = std::move(name); }

  /// Hooks of the following steps.
  void set_hooks(StageHooks hooks) { hooks_ = std::move(hooks); }
  Engine& engine() { return runner_.engine(); }
  void replace_rows(int layer, std::span<const Write> rows) { runner_.replace_rows(layer, rows); }
  /// See Runner.
  std::optional<StepObservation>& broken_off() { return runner_.broken_off(); }
  /// The plan of the next step, or null at the end.
  const StepPlan* upcoming() const;

 private:
  Runner& runner_;
  const RunPlan& plan_;
  SourceInfo info_;
  std::size_t next_;
  StageHooks hooks_;
};

}  // namespace dsv4::oracle
