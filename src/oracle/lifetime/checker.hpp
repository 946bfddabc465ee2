/// Lifetime checks for every engine: what a step reads, writes and leaves behind, against a shadow of all
/// caches.
///
/// The shadow follows from the plans' events and from what the engine says it wrote; the engine's memory is
/// not looked at. Checked are
///   tables  the block tables by which the engine computes (Engine::held_tables) are the allocator's;
///   reads   every state row that a pool takes in (docs/numerics.md 12.4, 12.5), every index entry up to
///   `visible`
///           (13), every slot of the published lists (14): held by or shared with the reader, written since
///           it was handed out, and of the token that belongs there;
///   writes  into a page or state base that the request holds alone, in the slot of the position;
///   events  after each step the rows that are live (12.3) are there; no page is handed out, given back or
///   poisoned
///           against the allocator's own word.
///
/// A finding says who reads or writes which row where, and who wrote it last. Rows that break the same rule
/// in one stage for one request make one finding.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "compare/comparison.hpp"
#include "model/engine.hpp"
#include "oracle/lifetime/row_check.hpp"

namespace dsv4::oracle {

class LifetimeChecker {
 public:
  /// Both must outlive the checker. The ledger is driven by the caller: its begin() before ours, its end()
  /// before ours.
  LifetimeChecker(const RunConfig& config, const PageLedger& ledger);

  /// A step begins: tokens, copies.
  void begin(const StepPlan& plan);
  /// The tables of the engine (Engine::held_tables), told between its begin_step and end_step.
  void tables(std::span<const HeldTable> held, const StepPlan& plan);
  /// One layer when the stages that write caches and publish lists have run: what it read and wrote. Once a
  /// step.
  void layer(const Engine& engine, const StepPlan& plan, int layer, std::span<const Write> writes);
  /// The engine broke off within the step: what was found until then.
  std::vector<compare::Finding> broken_off();
  /// The step is over. The findings are those of the whole step.
  std::vector<compare::Finding> end(const StepPlan& plan);

  /// In place of tables() and layer() where no engine runs: all that the plan permits was written. For steps
  /// that another run has done (before a checkpoint), and to look at plans alone.
  void assume_right(const StepPlan& plan);

  /// Adds who wrote a row last to findings of other checks that name page and offset.
  void name_writers(std::vector<compare::Finding>& findings);

 private:
  /// Of a row, or of what a stage does to it.
  struct Access {
    int layer;
    Stage stage;
    Cache cache;
    const char* verb;  ///< "reads", "writes", "leaves"
    const char* kind;  ///< first word of the finding's kind: "read", "write", "live"
  };
  struct Key {
    int layer;
    Stage stage;
    Cache cache;
    std::string kind;
    std::int32_t request;
    auto operator<=>(const Key&) const = default;
  };

  // reads.cpp
  void pool_reads(const StepPlan& plan, int layer);
  void pool_reads_of(const StepPlan& plan, int layer, Stage stage, Cache state);
  void score_reads(const Engine& engine, const StepPlan& plan, int layer);
  void list_reads(const Engine& engine, const StepPlan& plan, int layer);
  void window_list(const StepPlan& plan, int layer, const Tensor& slots);
  void compressed_list(const StepPlan& plan, int layer, const Tensor& slots, const Tensor* selected);

  void write(const StepPlan& plan, int layer, const Write& write);
  void check(const Access& access, const WantedRow& wanted, std::int64_t slot);
  void report(const Access& access, const std::string& fault, const WantedRow& wanted, std::int64_t slot,
              std::string why);
  void commit_banks(const StepPlan& plan);
  void write_permitted(const StepPlan& plan);
  void live_rows(const StepPlan& plan);
  void live_rows_of(const LiveRequest& live, int layer, Cache cache, std::int32_t first_entry);
  void plan_errors(const StepPlan& plan);
  LayerKind kind(int layer) const { return config_.layers[static_cast<std::size_t>(layer)]; }

  const RunConfig& config_;
  const PageLedger& ledger_;
  TokenContents contents_;
  ShadowMap shadow_;
  RowCheck rows_;
  const StepPlan* plan_ = nullptr;
  std::map<std::int32_t, const BlockTables*> seen_;  ///< tables of the live requests after the last step
  std::map<Key, std::size_t> found_;                 ///< rule broken -> finding
  std::vector<compare::Finding> findings_;
  std::vector<std::int64_t> repeats_;  ///< by finding: further rows
};

}  // namespace dsv4::oracle
