/// The caches of one layer of the wide engine: sizes, addresses, lifecycle, and what a row holds.
/// Implements docs/numerics.md 12.2, 12.3, 14 and 20 (state addresses).
///
/// In quantised profiles rows are the profile's bytes. In `exact` a row is its float64 values: 512 or 128 of
/// a key, kv then score (or max, sum, kv) of a state row; rows given in the profile's bytes are converted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/engine.hpp"
#include "model/step_plan.hpp"
#include "wide/row_memory.hpp"

namespace dsv4::wide {

/// Where a request's rows live: its tables and its state base, from RequestStep or LiveRequest.
struct Residence {
  const BlockTables& tables;
  std::int32_t state_base;
};

class Caches {
 public:
  Caches(const RunConfig& config, int layer);

  /// Slot of a position (window, state) or entry index (entries); -1 where no page is held.
  std::int64_t slot(Cache cache, const Residence& home, std::int32_t index) const;
  /// Slot of a bank of online state.
  std::int64_t online_slot(const Residence& home, std::int32_t bank) const;
  bool online() const { return online_; }

  RowMemory& memory(Cache cache);
  const RowMemory& memory(Cache cache) const;

  /// Stores a row given in the profile's bytes or, in `exact`, as float64.
  void put(Cache cache, std::int64_t slot, std::span<const std::byte> bytes);

  /// The 512 values of a window row or entry, dequantised.
  void read_kv(Cache cache, std::int64_t slot, double* out) const;
  /// The 128 values of an index row. FP8 rows give their codes and return the scale; others return 1.
  double read_index(std::int64_t slot, double* out) const;
  /// The values of a state row: kv then score, or max, sum and kv.
  std::vector<double> read_state(Cache cache, std::int64_t slot) const;
  /// The bytes of a state row from its values (float32, or float64 in `exact`).
  std::vector<std::byte> state_bytes(std::span<const double> values) const;

  void copy(const PageCopy& copy);
  void fill(const PageRef& page, std::uint8_t value);
  void fill_base(std::int32_t base, std::uint8_t value);
  /// Live rows of one request in logical order, appended.
  void append_live(Cache cache, const LiveRequest& live, std::vector<std::byte>& out) const;

 private:
  std::optional<Cache> cache_of(Pool pool) const;
  std::vector<std::byte> widened(Cache cache, std::span<const std::byte> bytes) const;

  LayerKind kind_;
  bool exact_;
  KvCache kv_cache_;
  IndexCache index_cache_;
  bool online_;
  std::array<bool, kCacheCount> by_base_{};            ///< addressed by state base, not by a block table
  std::array<std::int64_t, kCacheCount> base_rows_{};  ///< ring rows or banks
  std::array<std::optional<RowMemory>, kCacheCount> memories_;
};

}  // namespace dsv4::wide
