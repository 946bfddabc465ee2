#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "gpu/step_layout.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

/// Throws if a table names a page that the pool does not have; -1, none held, passes.
void check_page(const RunConfig& config, Pool pool, std::int32_t page, std::int32_t row) {
  if (page == -1 || (page > layout::kNullPage && page < config.pool_pages[static_cast<std::size_t>(pool)])) return;
  throw InternalError("cuda engine: page " + std::to_string(page) + " of pool " + std::string(name(pool)) + " for row " +
                      std::to_string(row) + " is outside 1.." +
                      std::to_string(config.pool_pages[static_cast<std::size_t>(pool)] - 1));
}

/// Slot of logical item `row` in a block table, checked; -1 if none is held.
std::int64_t slot_in(const RunConfig& config, const BlockTables& tables, Pool pool, std::int32_t row, int rows_a_page) {
  const std::vector<std::int32_t>& table = tables[static_cast<std::size_t>(pool)];
  const std::size_t item = static_cast<std::size_t>(row / rows_a_page);
  if (row < 0 || item >= table.size() || table[item] == -1) return -1;
  check_page(config, pool, table[item], row);
  return std::int64_t{table[item]} * rows_a_page + row % rows_a_page;
}

std::int32_t held(std::int64_t slot, const char* what, std::int32_t request, std::int32_t row) {
  if (slot >= 0) return static_cast<std::int32_t>(slot);
  throw InternalError(std::string("cuda engine: no ") + what + " memory is held for row " + std::to_string(row) +
                      " of request " + std::to_string(request));
}

bool has_layer(const RunConfig& config, LayerKind kind) {
  return std::ranges::find(config.layers, kind) != config.layers.end();
}

/// Pages that attention reads for a row at `position`: of the window, or of the entries visible to it.
struct PageRange {
  std::int32_t first = 0;
  std::int32_t end = 0;
};
PageRange pages_read(const RunConfig& config, Pool pool, std::int32_t position) {
  const int rows = page_rows(config, pool);
  if (pool == Pool::window) return {std::max(0, position - kWindow + 1) / rows, position / rows + 1};
  const std::int32_t visible = (position + 1) / (pool == Pool::entries_c128 ? 128 : 4);
  return {0, (visible + rows - 1) / rows};
}

/// Pools that kernels read through a block table.
std::vector<Pool> read_pools(const RunConfig& config) {
  std::vector<Pool> pools{Pool::window};
  if (has_layer(config, LayerKind::csa)) {
    pools.push_back(Pool::entries_c4);
    pools.push_back(Pool::index);
  }
  if (has_layer(config, LayerKind::hca)) pools.push_back(Pool::entries_c128);
  return pools;
}

/// Kernels follow block tables without looking: every page that they may read is checked here.
void check_tables(const RunConfig& config, const RequestStep& request) {
  if (request.row_count == 0) return;
  for (const Pool pool : read_pools(config)) {
    const auto& table = (*request.tables)[static_cast<std::size_t>(pool)];
    const std::int32_t first = pages_read(config, pool, request.begin).first;
    const std::int32_t end = pages_read(config, pool, request.end - 1).end;
    for (std::int32_t item = first; item < end; ++item) {
      const std::int32_t row = item * page_rows(config, pool);
      const std::int32_t page = item < static_cast<std::int32_t>(table.size()) ? table[static_cast<std::size_t>(item)] : -1;
      check_page(config, pool, page, row);
      if (page >= 0 || pool == Pool::window) continue;
      throw InternalError("cuda engine: no page of pool " + std::string(name(pool)) + " is held for entry " +
                          std::to_string(row) + " of request " + std::to_string(request.request));
    }
  }
}

std::int32_t kept_state(const KeepFrom& from, LayerKind kind, bool indexer) {
  return indexer ? from.state_index : kind == LayerKind::csa ? from.state_c4 : from.state_c128;
}

void add_compressor(const RunConfig& config, const RequestStep& request, LayerKind kind, bool indexer,
                    CompressorStep& out) {
  const int r = ratio(kind);
  const int pooled_rows = kind == LayerKind::csa ? 2 * r : r;
  const bool online = is_online(config, kind);
  const Pool entries = indexer ? Pool::index : kind == LayerKind::csa ? Pool::entries_c4 : Pool::entries_c128;
  const std::int32_t entry_from = kind == LayerKind::csa ? request.from.entries_c4 : request.from.entries_c128;
  const std::int32_t state_from = kept_state(request.from, kind, indexer);
  const auto slot_of_state = [&](std::int32_t p) {
    return held(state_slot(config, *request.tables, kind, indexer, request.state_base, p), "state", request.request, p);
  };

  const std::int64_t first_entry = out.entries();
  for (std::int32_t p = request.begin; p < request.end; ++p) {
    const std::int32_t index = (p + 1) / r - 1;
    if ((p + 1) % r != 0 || index < entry_from) continue;
    out.entry_request.host.push_back(request.request);
    out.entry_index.host.push_back(index);
    out.entry_slot.host.push_back(
        held(entry_slot(config, *request.tables, entries, index), "entry", request.request, index));
    out.entry_position.host.push_back(p + 1 - r);
    if (online) continue;
    for (std::int32_t row = p - pooled_rows + 1; row <= p; ++row) {
      out.source.host.push_back(row < 0                ? kSkipRow
                                : row >= request.begin ? request.first_row + (row - request.begin)
                                                       : -1 - slot_of_state(row));
    }
  }

  if (online) {
    if (state_from >= request.end || request.row_count == 0) return;
    const std::int32_t begin = std::max(request.begin, state_from);
    OnlineSegment segment{};
    segment.first_row = request.first_row + (begin - request.begin);
    segment.rows = request.end - begin;
    segment.position = begin;
    segment.slot = request.state_base * online_banks(config.cache);
    segment.bank_step = request.verify ? 1 : 0;
    segment.first_entry = static_cast<std::int32_t>(first_entry);
    segment.first_closing = (entry_from + 1) * r - 1;
    segment.first_state_row = static_cast<std::int32_t>(out.state_row.size());
    const auto* words = reinterpret_cast<const std::int32_t*>(&segment);
    out.online.host.insert(out.online.host.end(), words, words + sizeof segment / sizeof(std::int32_t));
    for (std::int32_t k = request.verify ? 0 : segment.rows - 1; k < segment.rows; ++k) {
      out.state_row.host.push_back(segment.first_row + k);
      out.state_slot.host.push_back(segment.slot + (request.verify ? 1 + k : 0));
      out.state_request.push_back(request.request);
      out.state_position.push_back(begin + k);
    }
    return;
  }
  const std::int32_t live = request.verify ? request.begin : first_live_state(kind, request.committed);
  for (std::int32_t p = std::max({request.begin, live, state_from}); p < request.end; ++p) {
    out.state_row.host.push_back(request.first_row + (p - request.begin));
    out.state_slot.host.push_back(slot_of_state(p));
    out.state_request.push_back(request.request);
    out.state_position.push_back(p);
  }
}

}  // namespace

int page_rows(const RunConfig& config, Pool pool) {
  switch (pool) {
    case Pool::window:
      return config.cache.swa_page;
    case Pool::entries_c4:
      return config.cache.c4_page;
    case Pool::entries_c128:
      return config.cache.c128_page;
    case Pool::index:
      return config.cache.index_page;
    case Pool::state_c4:
    case Pool::state_index:
      return layout::kStatePageRowsC4;
    case Pool::state_c128:
      return layout::kStatePageRowsC128;
  }
  throw InternalError("unknown pool");
}

bool is_online(const RunConfig& config, LayerKind kind) {
  return kind == LayerKind::hca && config.cache.c128_state == C128State::online;
}

int state_unit_rows(const RunConfig& config, LayerKind kind) {
  if (kind == LayerKind::csa) return config.cache.c4_state == C4State::ring ? 1 : layout::kStatePageRowsC4;
  return config.cache.c128_state == C128State::paged ? layout::kStatePageRowsC128 : 1;
}

std::int64_t state_rows(const RunConfig& config, LayerKind kind, bool indexer) {
  if (is_online(config, kind)) return std::int64_t{config.state_bases} * online_banks(config.cache);
  if (state_unit_rows(config, kind) == 1) {
    return std::int64_t{config.state_bases} *
           (kind == LayerKind::csa ? ring_rows_c4(config.cache) : ring_rows_c128(config.cache));
  }
  const Pool pool = pool_of(kind, indexer ? Cache::index_state : Cache::state);
  return config.pool_pages[static_cast<std::size_t>(pool)] * page_rows(config, pool);
}

std::int64_t window_slot(const RunConfig& config, const BlockTables& tables, std::int32_t row) {
  return slot_in(config, tables, Pool::window, row, config.cache.swa_page);
}

std::int64_t entry_slot(const RunConfig& config, const BlockTables& tables, Pool pool, std::int32_t row) {
  return slot_in(config, tables, pool, row, page_rows(config, pool));
}

std::int64_t state_slot(const RunConfig& config, const BlockTables& tables, LayerKind kind, bool indexer,
                        std::int32_t base, std::int32_t row) {
  if (state_unit_rows(config, kind) == 1) {
    const int rows = kind == LayerKind::csa ? ring_rows_c4(config.cache) : ring_rows_c128(config.cache);
    if (base < 0 || base >= config.state_bases) {
      throw InternalError("cuda engine: state base " + std::to_string(base) + " of " +
                          std::to_string(config.state_bases));
    }
    return std::int64_t{base} * rows + row % rows;
  }
  const Pool pool = pool_of(kind, indexer ? Cache::index_state : Cache::state);
  return slot_in(config, tables, pool, row, page_rows(config, pool));
}

Capacity needed_capacity(const RunConfig& config, const StepPlan& plan) {
  Capacity need;
  for (const RequestStep& request : plan.requests) {
    if (request.row_count == 0) continue;
    if (has_layer(config, LayerKind::csa)) need.c4 = std::max(need.c4, request.end / 4);
    if (has_layer(config, LayerKind::hca)) need.c128 = std::max(need.c128, request.end / 128);
  }
  return need;
}

Capacity graph_capacity(const RunConfig& config, const Capacity& need) {
  constexpr std::int32_t kLeastTokens = 4096;
  const auto entries = [&](Pool pool) {
    return (config.pool_pages[static_cast<std::size_t>(pool)] - 1) * page_rows(config, pool);
  };
  const auto grown = [](std::int32_t least, std::int32_t need_entries, std::int64_t most) {
    std::int64_t capacity = least;
    while (capacity < need_entries) capacity *= 2;
    return static_cast<std::int32_t>(std::max<std::int64_t>(std::min(capacity, most), 1));
  };
  Capacity capacity;
  if (has_layer(config, LayerKind::csa)) {
    capacity.c4 = grown(kLeastTokens / 4, need.c4, std::min(entries(Pool::entries_c4), entries(Pool::index)));
  }
  if (has_layer(config, LayerKind::hca)) {
    capacity.c128 = grown(kLeastTokens / 128, need.c128, entries(Pool::entries_c128));
  }
  return capacity;
}

StepLayout::StepLayout(const RunConfig& config, const StepPlan& plan, std::optional<Capacity> capacity) {
  tokens = static_cast<std::int64_t>(plan.rows.size());
  for (const Row& row : plan.rows) rows.position.host.push_back(row.request < 0 ? -1 : row.position);
  for (Ints* ints : {&rows.window_slot, &rows.window_table, &rows.entries_c4_table, &rows.entries_c128_table,
                     &rows.index_table}) {
    ints->host.assign(plan.rows.size(), -1);
  }
  const bool csa = has_layer(config, LayerKind::csa);
  const bool hca = has_layer(config, LayerKind::hca);
  true_widest = needed_capacity(config, plan);
  widest_c4 = true_widest.c4;
  widest_c128 = true_widest.c128;
  for (const RequestStep& request : plan.requests) {
    if (plan.kind != StepKind::restore) check_tables(config, request);  // a restore step reads no keys
    for (std::int32_t p = std::max(request.begin, request.from.window); p < request.end; ++p) {
      rows.window_slot.host[static_cast<std::size_t>(request.first_row + p - request.begin)] =
          static_cast<std::int32_t>(gpu::window_slot(config, *request.tables, p));
    }
    if (!capacity) add_tables(request);
    if (csa) {
      add_compressor(config, request, LayerKind::csa, false, c4);
      add_compressor(config, request, LayerKind::csa, true, index);
    }
    if (hca) add_compressor(config, request, LayerKind::hca, false, c128);
  }
  for (CompressorStep* step : {&c4, &c128, &index}) {
    step->true_entries = step->entries();
    step->true_state_rows = step->state_row.size();
  }
  if (!capacity) return;
  require(capacity->holds(true_widest), "cuda engine: a step sees more entries than its graph has room for");
  graph_form_ = true;
  widest_c4 = capacity->c4;
  widest_c128 = capacity->c128;
  add_graph_tables(config, plan);
  pad(config);
}

Ints& StepLayout::table_of(Pool pool) {
  switch (pool) {
    case Pool::window:
      return rows.window_table;
    case Pool::entries_c4:
      return rows.entries_c4_table;
    case Pool::entries_c128:
      return rows.entries_c128_table;
    case Pool::index:
      return rows.index_table;
    default:
      throw InternalError("cuda engine: kernels read no block table of pool " + std::string(name(pool)));
  }
}

/// Whole tables, once for each request.
void StepLayout::add_tables(const RequestStep& request) {
  for (const Pool pool : {Pool::window, Pool::entries_c4, Pool::entries_c128, Pool::index}) {
    const auto offset = static_cast<std::int32_t>(tables.host.size());
    const auto& table = (*request.tables)[static_cast<std::size_t>(pool)];
    tables.host.insert(tables.host.end(), table.begin(), table.end());
    std::fill_n(table_of(pool).host.begin() + request.first_row, request.row_count, offset);
  }
}

/// For each row the pages that it reads, at a stride that the capacity fixes. An offset is that of page 0, which
/// for a window may lie before the row's own pages.
void StepLayout::add_graph_tables(const RunConfig& config, const StepPlan& plan) {
  for (const Pool pool : read_pools(config)) {
    const int page = page_rows(config, pool);
    const std::int32_t entries = pool == Pool::entries_c128 ? widest_c128 : widest_c4;
    const std::int32_t stride = pool == Pool::window ? (kWindow + page - 2) / page + 1 : (entries + page - 1) / page;
    const std::size_t base = tables.host.size();
    tables.host.resize(base + static_cast<std::size_t>(stride) * plan.rows.size(), -1);
    for (const RequestStep& request : plan.requests) {
      const auto& table = (*request.tables)[static_cast<std::size_t>(pool)];
      for (std::int32_t i = 0; i < request.row_count; ++i) {
        const std::size_t row = static_cast<std::size_t>(request.first_row + i);
        const std::size_t own = base + row * static_cast<std::size_t>(stride);
        const PageRange read = pages_read(config, pool, request.begin + i);
        require(read.end - read.first <= stride, "cuda engine: a row reads more pages than its graph has room for");
        for (std::int32_t item = read.first; item < read.end && item < static_cast<std::int32_t>(table.size()); ++item) {
          tables.host[own + static_cast<std::size_t>(item - read.first)] = table[static_cast<std::size_t>(item)];
        }
        table_of(pool).host[row] = static_cast<std::int32_t>(own) - read.first;
      }
    }
  }
}

std::vector<HeldTable> StepLayout::held_tables(const RunConfig& config, const StepPlan& plan,
                                               std::span<const std::int32_t> values) const {
  std::vector<HeldTable> held;
  for (const RequestStep& request : plan.requests) {
    for (const Pool pool : read_pools(config)) {
      const auto length = static_cast<std::int32_t>((*request.tables)[static_cast<std::size_t>(pool)].size());
      const std::int32_t rows = graph_form_ ? request.row_count : std::min(request.row_count, 1);
      for (std::int32_t i = 0; i < rows; ++i) {
        PageRange read{0, length};
        if (graph_form_) {
          read = pages_read(config, pool, request.begin + i);
          read.end = std::min(read.end, length);
        }
        const std::int32_t offset = table_of(pool).host[static_cast<std::size_t>(request.first_row + i)];
        HeldTable table{request.request, pool, read.first, {}};
        for (std::int32_t item = read.first; item < read.end; ++item) {
          table.pages.push_back(values[static_cast<std::size_t>(offset + item)]);
        }
        held.push_back(std::move(table));
      }
    }
  }
  return held;
}

/// A row closes at most one entry, writes at most one state row and begins at most one segment.
void StepLayout::pad(const RunConfig& config) {
  const auto rows_of_graph = static_cast<std::size_t>(tokens);
  for (CompressorStep* step : {&c4, &c128, &index}) {
    const LayerKind kind = step == &c128 ? LayerKind::hca : LayerKind::csa;
    if (!has_layer(config, kind)) continue;
    for (Ints* ints : {&step->entry_request, &step->entry_index, &step->entry_slot, &step->state_row, &step->state_slot}) {
      require(ints->host.size() <= rows_of_graph, "cuda engine: a step of a graph has more entries or state rows than rows");
      ints->host.resize(rows_of_graph, -1);
    }
    step->entry_position.host.resize(rows_of_graph, 0);
    if (is_online(config, kind)) {
      step->online.host.resize(rows_of_graph * (sizeof(OnlineSegment) / sizeof(std::int32_t)), 0);  // of no rows
    } else {
      const int pooled_rows = kind == LayerKind::csa ? 2 * ratio(kind) : ratio(kind);
      step->source.host.resize(rows_of_graph * static_cast<std::size_t>(pooled_rows), kSkipRow);
    }
  }
}

std::vector<Ints*> StepLayout::arrays() {
  std::vector<Ints*> all{&rows.position,         &rows.window_slot,        &rows.window_table,
                         &rows.entries_c4_table, &rows.entries_c128_table, &rows.index_table,
                         &tables};
  for (CompressorStep* step : {&c4, &c128, &index}) {
    for (Ints* ints : {&step->entry_request, &step->entry_index, &step->entry_slot, &step->entry_position,
                       &step->source, &step->state_row, &step->state_slot, &step->online}) {
      all.push_back(ints);
    }
  }
  return all;
}

std::vector<std::int32_t> StepLayout::packed() {
  std::vector<std::int32_t> packed;
  for (const Ints* ints : arrays()) packed.insert(packed.end(), ints->host.begin(), ints->host.end());
  return packed;
}

void StepLayout::place(std::int32_t* device) {
  for (Ints* ints : arrays()) {
    ints->device = device;
    device += ints->size();
  }
}

}  // namespace dsv4::gpu
