/// What kernels need to know of a step: rows, slots, entries to close, state rows to write, block tables.
///
/// All slot arithmetic of the engine is here (docs/numerics.md 12, 14, 20): built on the host from the plan,
/// sent to the device as one array of int32. Every slot and page is checked against its pool; a bad one is an
/// InternalError with pool, request and position.
///
/// A captured graph has frozen launch parameters, so its layout has a graph form: arrays padded to sizes that
/// follow from the row count and a capacity alone (every row closes at most one entry and writes at most one
/// state row), block tables at a fixed stride a row. Padding has slot -1, row -1 or source kSkipRow, which
/// kernels leave out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/engine.hpp"
#include "model/step_plan.hpp"

namespace dsv4::gpu {

/// A host array with its place on the device, valid after StepLayout::place.
struct Ints {
  std::vector<std::int32_t> host;
  std::int32_t* device = nullptr;
  std::int64_t size() const { return static_cast<std::int64_t>(host.size()); }
};

inline constexpr std::int32_t kSkipRow = INT32_MIN;

/// Consecutive rows of one request through the online C128 recurrence.
struct OnlineSegment {
  std::int32_t first_row;     ///< batch row
  std::int32_t rows;
  std::int32_t position;      ///< of the first row
  std::int32_t slot;          ///< of bank 0
  std::int32_t bank_step;     ///< 1: row i goes to bank 1 + i (verify); 0: all to bank 0
  std::int32_t first_entry;   ///< index into the step's entries of this segment's first closing entry
  std::int32_t first_closing; ///< positions from here on close entries
  std::int32_t first_state_row; ///< index into the step's state rows: one for the segment, or one for each verify row
};

/// One compressor (main or indexer's) in one step.
struct CompressorStep {
  // Entries that close, in batch-row order.
  Ints entry_request, entry_index, entry_slot, entry_position;  ///< position: of RoPE, p + 1 - r
  Ints source;  ///< [entries, pooled rows]: batch row, or -1 - state slot, or kSkipRow below position 0
  // State rows written, in batch-row order.
  Ints state_row, state_slot;
  std::vector<std::int32_t> state_request, state_position;
  Ints online;  ///< OnlineSegment as ints
  // Without padding.
  std::int64_t true_entries = 0;
  std::int64_t true_state_rows = 0;
  std::int64_t segments() const { return online.size() / static_cast<std::int64_t>(sizeof(OnlineSegment) / 4); }
  std::int64_t entries() const { return entry_index.size(); }
};

/// Per batch row what lists and visibility need.
struct RowTables {
  Ints position;       ///< [T], -1 for padding
  Ints window_slot;    ///< [T], where kv.window writes, -1 if nowhere
  Ints window_table;   ///< [T] offset of the request's window table in `tables`, -1 for padding
  Ints entries_c4_table, entries_c128_table, index_table;  ///< likewise
};

/// Most visible entries of a row that a graph has room for; 0 for a layer kind that the run lacks.
struct Capacity {
  std::int32_t c4 = 0;
  std::int32_t c128 = 0;
  bool holds(const Capacity& need) const { return c4 >= need.c4 && c128 >= need.c128; }
};

/// What a step needs, and what a graph is given for it: a power of two that makes recapturing rare, at most what
/// the pools can hold.
Capacity needed_capacity(const RunConfig& config, const StepPlan& plan);
Capacity graph_capacity(const RunConfig& config, const Capacity& need);

class StepLayout {
 public:
  /// With a capacity: the graph form. Fills host arrays only.
  StepLayout(const RunConfig& config, const StepPlan& plan, std::optional<Capacity> capacity = std::nullopt);

  /// All arrays as one, and where they lie once that was copied to `device`.
  std::vector<std::int32_t> packed();
  void place(std::int32_t* device);

  std::int64_t tokens = 0;
  RowTables rows;
  Ints tables;                ///< block tables of all requests of the step, one after another
  CompressorStep c4, c128, index;
  std::int32_t widest_c4 = 0;    ///< most visible entries of any row, ratio 4; graph form: the capacity
  std::int32_t widest_c128 = 0;  ///< likewise ratio 128
  Capacity true_widest;          ///< without padding

  /// The pages that kernels find for the rows of `plan`: whole tables, in graph form those that a row reads. `values`
  /// is what lies at `tables` on the device, or its host side.
  std::vector<HeldTable> held_tables(const RunConfig& config, const StepPlan& plan,
                                     std::span<const std::int32_t> values) const;

  const CompressorStep& compressor(LayerKind kind, bool indexer) const {
    return indexer ? index : kind == LayerKind::csa ? c4 : c128;
  }

 private:
  bool graph_form_ = false;
  std::vector<Ints*> arrays();
  Ints& table_of(Pool pool);
  const Ints& table_of(Pool pool) const { return const_cast<StepLayout*>(this)->table_of(pool); }
  void add_tables(const RequestStep& request);
  void add_graph_tables(const RunConfig& config, const StepPlan& plan);
  void pad(const RunConfig& config);
};

/// Slots in a pool or state store. `row` is a token position, or an entry index for entries.
std::int64_t window_slot(const RunConfig& config, const BlockTables& tables, std::int32_t row);
std::int64_t entry_slot(const RunConfig& config, const BlockTables& tables, Pool pool, std::int32_t row);
std::int64_t state_slot(const RunConfig& config, const BlockTables& tables, LayerKind kind, bool indexer,
                        std::int32_t base, std::int32_t row);
/// Entries a page of a pool, rows of a state store, and whether state is the online form.
int page_rows(const RunConfig& config, Pool pool);
bool is_online(const RunConfig& config, LayerKind kind);
std::int64_t state_rows(const RunConfig& config, LayerKind kind, bool indexer);
/// Rows of a page of a layer kind's state; 1 for a ring and for online state.
int state_unit_rows(const RunConfig& config, LayerKind kind);

}  // namespace dsv4::gpu
