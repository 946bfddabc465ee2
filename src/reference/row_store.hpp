/// Byte-exact rows of one cache of one layer, addressed by slot (docs/numerics.md 12, page layouts).
///
/// A store is `units` units of `unit_rows` rows, `pitch` bytes apart. Slot s is row s mod unit_rows of unit
/// s / unit_rows. Inside a unit all value parts come first, row after row, then all scale parts:
///
///   KV page       576 value bytes (448 e4m3, 64 bf16), 8 scale bytes (7 ue8m0, one 0)
///   FP8 index     128 value bytes, one f32 scale
///   FP4 index     64 value bytes (packed e2m1), 4 ue8m0
///   state         kv then score, f32 [channels] each, no scale part; a ring is a store of one-row units
///   online state  max, sum, kv, f32 [channels] each
///
/// A row handed in or out is its value bytes followed by its scale bytes. A slot or unit out of range, and a
/// write to the null unit, throw InternalError naming the store, the slot and the unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/poisoned_memory.hpp"

namespace dsv4::reference {

struct RowShape {
  int value_bytes = 0;
  int scale_bytes = 0;
  int unit_rows = 1;
  std::int64_t units = 0;
  std::int64_t pitch = 0;  ///< bytes from one unit to the next, at least unit_rows * row_bytes()
  bool null_unit = false;  ///< unit 0 is the null page: never written by a stage

  int row_bytes() const { return value_bytes + scale_bytes; }
  std::int64_t slots() const { return units * unit_rows; }
};

class RowStore {
 public:
  RowStore() = default;
  /// `what` names the store in errors, for example "layer 2 entries".
  RowStore(std::string what, const RowShape& shape);

  const RowShape& shape() const { return shape_; }
  bool paged() const { return shape_.null_unit; }

  /// The two parts of a row.
  const std::byte* values(std::int64_t slot) const;
  const std::byte* scales(std::int64_t slot) const;

  void read(std::int64_t slot, std::span<std::byte> row) const;
  void write(std::int64_t slot, std::span<const std::byte> row);

  /// Whole units, pitch included; these may touch the null unit.
  std::vector<std::byte> read_unit(std::int64_t unit) const;
  void write_unit(std::int64_t unit, std::span<const std::byte> bytes);
  /// Overwrites a unit with one byte value.
  void fill_unit(std::int64_t unit, std::uint8_t value);
  /// The first `rows` rows of a unit into another.
  void copy_rows(std::int64_t from, std::int64_t to, int rows);

 private:
  std::int64_t unit_of(std::int64_t slot) const;
  void check_unit(std::int64_t unit, bool writes) const;
  std::uint64_t value_offset(std::int64_t slot) const;
  std::uint64_t scale_offset(std::int64_t slot) const;

  std::string what_;
  RowShape shape_;
  PoisonedMemory memory_;
};

}  // namespace dsv4::reference
