#include "reference/slots.hpp"

#include <fmt/format.h>

#include "model/error.hpp"

namespace dsv4::reference {

int page_rows(const CacheConfig& cache, LayerKind kind, Cache which) {
  switch (which) {
    case Cache::window:
      return cache.swa_page;
    case Cache::entries:
      return kind == LayerKind::csa ? cache.c4_page : cache.c128_page;
    case Cache::index_entries:
      return cache.index_page;
    case Cache::state:
    case Cache::index_state:
      return kind == LayerKind::csa ? layout::kStatePageRowsC4 : layout::kStatePageRowsC128;
  }
  throw InternalError("unknown cache");
}

StateForm state_form(const CacheConfig& cache, LayerKind kind) {
  if (kind == LayerKind::csa) return cache.c4_state == C4State::ring ? StateForm::ring : StateForm::paged;
  switch (cache.c128_state) {
    case C128State::ring:
      return StateForm::ring;
    case C128State::paged:
      return StateForm::paged;
    case C128State::online:
      return StateForm::online;
  }
  throw InternalError("unknown state form");
}

int state_rows(const CacheConfig& cache, LayerKind kind) {
  if (kind == LayerKind::csa) return ring_rows_c4(cache);
  return online_state(cache, kind) ? online_banks(cache) : ring_rows_c128(cache);
}

Slots::Slots(const RunConfig& config, int layer, std::int32_t request, const BlockTables* tables,
             std::int32_t state_base)
    : config_(config),
      layer_(layer),
      kind_(config.layers[static_cast<std::size_t>(layer)]),
      request_(request),
      tables_(tables),
      state_base_(state_base) {}

void Slots::fail(Cache cache, std::int32_t index, const char* reason) const {
  throw InternalError(
      fmt::format("layer {} {}: request {}, index {}: {}", layer_, name(cache), request_, index, reason));
}

std::int64_t Slots::find(Cache cache, std::int32_t index) const {
  if (index < 0) fail(cache, index, "an index below 0");
  const bool is_state = cache == Cache::state || cache == Cache::index_state;
  if (is_state && state_form(config_.cache, kind_) != StateForm::paged) {
    if (online_state(config_.cache, kind_)) fail(cache, index, "online state has banks, not rows");
    if (state_base_ < 0 || state_base_ >= config_.state_bases)
      fail(cache, index, "a state base out of range");
    const std::int64_t rows = state_rows(config_.cache, kind_);
    return state_base_ * rows + index % rows;
  }
  const int rows = page_rows(config_.cache, kind_, cache);
  const auto pool = static_cast<std::size_t>(pool_of(kind_, cache));
  if (tables_ == nullptr) fail(cache, index, "no block tables");
  const std::vector<std::int32_t>& table = (*tables_)[pool];
  const auto item = static_cast<std::size_t>(index / rows);
  if (item >= table.size() || table[item] < 0) return -1;
  if (table[item] == layout::kNullPage) fail(cache, index, "the block table names the null page");
  if (table[item] >= config_.pool_pages[pool])
    fail(cache, index, "the block table names a page outside its pool");
  return std::int64_t{table[item]} * rows + index % rows;
}

std::int64_t Slots::at(Cache cache, std::int32_t index) const {
  const std::int64_t slot = find(cache, index);
  if (slot < 0) fail(cache, index, "no page is held for it");
  return slot;
}

std::int64_t Slots::bank(int bank) const {
  const int banks = online_banks(config_.cache);
  if (bank < 0 || bank >= banks) fail(Cache::state, bank, "a bank that does not exist");
  if (state_base_ < 0 || state_base_ >= config_.state_bases)
    fail(Cache::state, bank, "a state base out of range");
  return std::int64_t{state_base_} * banks + bank;
}

}  // namespace dsv4::reference
