/// What a request's caches hold: which window rows, which compressor state rows, how many entries. Rows of
/// tokens that were rolled back are forgotten at once, so "present" always means "of the committed token at
/// that position".
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4::scenario {

/// State rows of one compressor of one request, whatever the addressing.
class StateRows {
 public:
  enum class Form : std::uint8_t { ring, paged, online };

  StateRows() = default;
  /// `ring_rows` is R of a ring.
  StateRows(Form form, int ring_rows);

  Form form() const { return form_; }
  /// The row of a position was written (online: the accumulator took this token in).
  void write(std::int32_t position);
  /// Ring and paged: the row of this position is there.
  bool has(std::int32_t position) const;
  /// Online: tokens 0 .. accumulated() - 1 are in the accumulator of the group that holds the last one; 0:
  /// none.
  std::int32_t accumulated() const { return accumulated_; }
  /// Forgets rows of positions at or above `length`.
  void cut(std::int32_t length);
  /// Paged: forgets rows below `position`, whose pages were given back.
  void release_below(std::int32_t position);

 private:
  Form form_ = Form::ring;
  std::vector<std::int32_t> slots_;  ///< ring: position of the row in each slot, -1: none
  std::set<std::int32_t> rows_;      ///< paged
  std::int32_t accumulated_ = 0;     ///< online
};

struct HeldRows {
  std::vector<bool> window;  ///< by position
  StateRows state_c4;        ///< CSA compressor and indexer alike
  StateRows state_c128;
  std::int32_t entries_c4 = 0;  ///< entries 0 .. n - 1 are there, compressed and index
  std::int32_t entries_c128 = 0;

  static HeldRows none(const CacheConfig& cache);
  bool has_window(std::int32_t position) const {
    return static_cast<std::size_t>(position) < window.size() && window[static_cast<std::size_t>(position)];
  }
  void write_window(std::int32_t position);
  /// The page of these rows was given back.
  void clear_window(std::int32_t first, std::int32_t rows);
  /// Forgets everything of positions at or above `length`.
  void cut(std::int32_t length);
};

/// What a restore step has to do so that all rows live at a length are there (docs/numerics.md 12.6).
struct Missing {
  bool any = false;
  std::int32_t begin = 0;  ///< positions to recompute, [begin, end)
  std::int32_t end = 0;
  KeepFrom from;  ///< what is complete keeps `length` (positions) or the number of entries
};

/// The smallest contiguous range of positions that covers what is missing at `length`. An entry needs the
/// rows of its pool window, from the state as it is or from the range itself.
Missing missing_at(const HeldRows& held, const std::vector<LayerKind>& layers, std::int32_t length);

}  // namespace dsv4::scenario
