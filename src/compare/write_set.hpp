/// Expected write set: everything that a step may change in a cache, derived from the plan's block tables
/// alone by a literal loop, against what the engine says it wrote and what its memory shows.
///
/// For each cache of each layer: every write must be one that the plan permits (owner, position or entry, and
/// the slot that the owner's table gives it); every permitted write must happen; every changed byte must lie
/// within a written row, a copied page, or memory that the plan releases or poisons; the null page never
/// changes.
#pragma once

#include <span>
#include <vector>

#include "compare/comparison.hpp"
#include "model/engine.hpp"

namespace dsv4::compare {

/// One row that a step may write.
struct PermittedWrite {
  Cache cache{};
  std::int64_t slot = 0;
  std::int32_t request = -1;
  std::int32_t index = -1;  ///< token position or entry index
  bool required = true;     ///< false: window rows that are not live after the step, and the like
};

/// The writes of a step into the caches of one layer (docs/numerics.md 12.2, 12.3 and 20).
std::vector<PermittedWrite> permitted_writes(const RunConfig& config, const StepPlan& plan, int layer);

class WriteSetChecker {
 public:
  /// The configuration must outlive the checker.
  explicit WriteSetChecker(const RunConfig& config);

  /// Call before Engine::begin_step: remembers the physical memory of every cache.
  void before(const Engine& engine);
  /// Rows put over those of the engine's stages from outside during the step (feeding): memory must hold
  /// them, not what the engine wrote.
  void replaced(int layer, std::span<const Write> rows);
  /// Call after Engine::end_step. Engines without byte-exact caches give no findings.
  std::vector<Finding> after(const Engine& engine, const StepPlan& plan);

 private:
  struct Memory {
    int layer = 0;
    Cache cache{};
    std::vector<std::vector<std::byte>> units;  ///< pages, or state rows
  };
  const RunConfig& config_;
  std::vector<Memory> memory_;
  std::vector<std::vector<Write>> replaced_;  ///< by layer, in order
  std::vector<LiveRequest> live_;             ///< after the last step, to name owners
};

}  // namespace dsv4::compare
