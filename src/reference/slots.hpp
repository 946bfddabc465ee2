/// Slot arithmetic (docs/numerics.md 12.2 and 20): where the rows of one request lie in the caches of a
/// layer.
///
/// Paged caches: slot = page * page_size + offset, the page taken from the request's block table. Ring: slot
/// = base * R + p mod R. Online: slot = base * banks + bank. `find` functions answer -1 where no page is
/// held; the others throw InternalError naming layer, cache, request and position or entry, and so does a
/// table that names the null page or a page outside its pool.
#pragma once

#include <cstdint>

#include "model/layout.hpp"
#include "model/step_plan.hpp"

namespace dsv4::reference {

/// Rows a page of a paged cache of a layer; the state's 4 or 8 rows when it is paged.
int page_rows(const CacheConfig& cache, LayerKind kind, Cache which);

/// How the compressor state of a layer is held.
enum class StateForm : std::uint8_t { ring, paged, online };
StateForm state_form(const CacheConfig& cache, LayerKind kind);

/// Rows a state base covers: the ring's rows, or the banks of online state.
int state_rows(const CacheConfig& cache, LayerKind kind);

/// Online C128 (12.5) keeps one running row, not the rows of a window.
inline bool online_state(const CacheConfig& cache, LayerKind kind) {
  return state_form(cache, kind) == StateForm::online;
}

class Slots {
 public:
  Slots(const RunConfig& config, int layer, std::int32_t request, const BlockTables* tables,
        std::int32_t state_base);
  Slots(const RunConfig& config, int layer, const RequestStep& step)
      : Slots(config, layer, step.request, step.tables.get(), step.state_base) {}
  Slots(const RunConfig& config, int layer, const LiveRequest& live)
      : Slots(config, layer, live.request, live.tables.get(), live.state_base) {}

  /// Row `index` (position, or entry index) of a cache, or -1. Not for online state.
  std::int64_t find(Cache cache, std::int32_t index) const;
  /// The same, where the plan must hold the row.
  std::int64_t at(Cache cache, std::int32_t index) const;
  /// Bank 0 is the committed one.
  std::int64_t bank(int bank) const;

 private:
  [[noreturn]] void fail(Cache cache, std::int32_t index, const char* reason) const;

  const RunConfig& config_;
  int layer_;
  LayerKind kind_;
  std::int32_t request_;
  const BlockTables* tables_;
  std::int32_t state_base_;
};

}  // namespace dsv4::reference
