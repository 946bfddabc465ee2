#include "scenario/memory.hpp"

#include <algorithm>
#include <limits>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::scenario {
namespace {

/// Pools of compressed and index entries, with the layers that own them.
struct EntryPool {
  Pool pool;
  LayerKind kind;
};
constexpr std::array kEntryPools{EntryPool{Pool::entries_c4, LayerKind::csa},
                                 EntryPool{Pool::index, LayerKind::csa},
                                 EntryPool{Pool::entries_c128, LayerKind::hca}};
constexpr std::array kStatePools{EntryPool{Pool::state_c4, LayerKind::csa},
                                 EntryPool{Pool::state_index, LayerKind::csa},
                                 EntryPool{Pool::state_c128, LayerKind::hca}};

bool pool_used(const RunConfig& config, Pool pool) {
  const auto has = [&](LayerKind kind) { return std::ranges::count(config.layers, kind) > 0; };
  switch (pool) {
    case Pool::window:
      return true;
    case Pool::entries_c4:
    case Pool::index:
      return has(LayerKind::csa);
    case Pool::entries_c128:
      return has(LayerKind::hca);
    case Pool::state_c4:
    case Pool::state_index:
      return has(LayerKind::csa) && config.cache.c4_state != C4State::ring;
    case Pool::state_c128:
      return has(LayerKind::hca) && config.cache.c128_state == C128State::paged;
  }
  return false;
}

}  // namespace

int page_rows(const CacheConfig& cache, Pool pool) {
  switch (pool) {
    case Pool::window:
      return cache.swa_page;
    case Pool::entries_c4:
      return cache.c4_page;
    case Pool::entries_c128:
      return cache.c128_page;
    case Pool::index:
      return cache.index_page;
    case Pool::state_c4:
    case Pool::state_index:
      return layout::kStatePageRowsC4;
    case Pool::state_c128:
      return layout::kStatePageRowsC128;
  }
  throw InternalError("unknown pool");
}

Memory::Memory(const RunConfig& config, bool limited) : config_(config) {
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    const auto which = static_cast<Pool>(i);
    used_[i] = pool_used(config, which);
    std::optional<std::int64_t> usable;
    if (limited) usable = std::max<std::int64_t>(config.pool_pages[i] - 1, 0);
    const std::int32_t first = limited && used_[i] ? config.cache.first_page.value_or(1) : 1;
    pools_.emplace_back(which, config.cache.allocate, usable, config.seed, first);
  }
}

std::int32_t Memory::take(Pool which, const RequestState& request, StepPlan& step) {
  const auto page = pool(which).take();
  if (!page) throw PoolEmpty(which, request.name, pool(which).usable().value_or(0));
  step.allocated.push_back({which, *page});
  return *page;
}

void Memory::give(RequestState& request, Pool which, std::size_t item, StepPlan& step) {
  std::int32_t& page = request.tables[static_cast<std::size_t>(which)][item];
  if (page < 0) return;
  if (pool(which).give(page)) step.released.push_back({which, page});
  page = -1;
  if (which == Pool::window) {
    const int rows = config_.cache.swa_page;
    request.held.clear_window(static_cast<std::int32_t>(item) * rows, rows);
  }
  request.tables_changed();
}

void Memory::cover(RequestState& request, Pool which, std::int32_t first, std::int32_t end, StepPlan& step) {
  if (!uses(which) || first >= end) return;
  const int rows = page_rows(config_.cache, which);
  auto& table = request.tables[static_cast<std::size_t>(which)];
  const auto last_item = static_cast<std::size_t>((end - 1) / rows);
  if (table.size() <= last_item) table.resize(last_item + 1, -1);
  for (auto item = static_cast<std::size_t>(first / rows); item <= last_item; ++item) {
    const std::int32_t held = table[item];
    if (held >= 0 && pool(which).holders(held) == 1) continue;
    const std::int32_t fresh = take(which, request, step);
    if (held >= 0) {
      const auto kept = first - static_cast<std::int32_t>(item) * rows;
      if (kept > 0) step.copies.push_back({which, held, fresh, kept});
      give(request, which, item, step);
    }
    table[item] = fresh;
    std::size_t& first_held = request.first_held[static_cast<std::size_t>(which)];
    first_held = std::min(first_held, item);
    request.tables_changed();
  }
}

std::pair<std::int32_t, std::int32_t> Memory::state_span(LayerKind kind, std::int32_t length) const {
  const std::int32_t first = first_live_state(kind, length);
  if (kind == LayerKind::csa && config_.cache.c4_state == C4State::page4align)
    return {first, length / 4 * 4 + 4};
  return {first, length};
}

void Memory::cover_step(RequestState& request, std::int32_t begin, std::int32_t end, std::int32_t committed,
                        const KeepFrom& from, bool all_state, StepPlan& step) {
  cover(request, Pool::window, std::max(begin, from.window), end, step);
  for (const auto& [which, kind] : kEntryPools) {
    const std::int32_t kept = kind == LayerKind::csa ? from.entries_c4 : from.entries_c128;
    cover(request, which, std::max(begin / ratio(kind), kept), end / ratio(kind), step);
  }
  for (const auto& [which, kind] : kStatePools) {
    const std::int32_t kept = kind == LayerKind::hca ? from.state_c128 : from.state_c4;
    const auto [first_live, span_end] = state_span(kind, committed);
    const std::int32_t first = std::max(begin, kept);
    if (all_state) {
      cover(request, which, first, std::max(end, span_end), step);
    } else {
      cover(request, which, std::max(first, first_live), span_end, step);
    }
  }
}

void Memory::keep_only(RequestState& request, Pool which, std::int32_t first, std::int32_t end,
                       StepPlan& step) {
  const int rows = page_rows(config_.cache, which);
  auto& table = request.tables[static_cast<std::size_t>(which)];
  // Items in front of those that are kept, then items behind them; what was given back before is not looked
  // at again, or the time of a long decode would grow with the square of its length.
  const std::size_t kept_first = std::min(table.size(), static_cast<std::size_t>(first / rows));
  const std::size_t kept_end = std::min(
      table.size(), std::max(kept_first, static_cast<std::size_t>((std::int64_t{end} + rows - 1) / rows)));
  std::size_t& first_held = request.first_held[static_cast<std::size_t>(which)];
  for (std::size_t item = first_held; item < kept_first; ++item) give(request, which, item, step);
  first_held = std::max(first_held, kept_first);
  for (std::size_t item = kept_end; item < table.size(); ++item) give(request, which, item, step);
  while (!table.empty() && table.back() < 0) table.pop_back();
}

void Memory::settle(RequestState& request, StepPlan& step) {
  const std::int32_t n = request.length();
  const bool eager = config_.cache.swa_release == SwaRelease::eager;
  const std::int32_t window_first = eager ? first_live_window(n) : 0;
  keep_only(request, Pool::window, window_first, n, step);
  for (const auto& [which, kind] : kEntryPools) keep_only(request, which, 0, live_entries(kind, n), step);
  for (const auto& [which, kind] : kStatePools) {
    const auto [first, end] = state_span(kind, n);
    keep_only(request, which, first, end, step);
  }
  request.held.state_c4.release_below(first_live_state(LayerKind::csa, n));
  request.held.state_c128.release_below(first_live_state(LayerKind::hca, n));
}

void Memory::drop(RequestState& request, Pool which, StepPlan& step) {
  auto& table = request.tables[static_cast<std::size_t>(which)];
  for (std::size_t item = 0; item < table.size(); ++item) give(request, which, item, step);
  table.clear();
  request.first_held[static_cast<std::size_t>(which)] = 0;
}

void Memory::drop_all(RequestState& request, StepPlan& step) {
  for (const auto& [which, kind] : kEntryPools) drop(request, which, step);
  drop_but_entries(request, step);
}

void Memory::drop_but_entries(RequestState& request, StepPlan& step) {
  drop(request, Pool::window, step);
  for (const auto& [which, kind] : kStatePools) drop(request, which, step);
  if (request.base >= 0) {
    bases_.give(request.base);
    step.released_bases.push_back(request.base);
    request.base = -1;
  }
  request.held = HeldRows::none(config_.cache);
  request.window_evicted = false;
}

void Memory::share_prefix(RequestState& request, const RequestState& donor, Pool which, std::int32_t entries,
                          StepPlan& step) {
  if (!uses(which)) return;
  const int rows = page_rows(config_.cache, which);
  const auto& source = donor.tables[static_cast<std::size_t>(which)];
  auto& table = request.tables[static_cast<std::size_t>(which)];
  request.first_held[static_cast<std::size_t>(which)] = 0;
  for (std::int32_t item = 0; item < entries / rows; ++item) {
    const std::int32_t page = source.at(static_cast<std::size_t>(item));
    pool(which).share(page);
    table.push_back(page);
  }
  if (const std::int32_t rest = entries % rows; rest > 0) {
    const std::int32_t page = take(which, request, step);
    step.copies.push_back({which, source.at(static_cast<std::size_t>(entries / rows)), page, rest});
    table.push_back(page);
  }
  request.tables_changed();
}

}  // namespace dsv4::scenario
