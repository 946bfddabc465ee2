#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "gpu/check.cuh"
#include "gpu/step_layout.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

/// Page of logical item `row` in a block table, checked; -1 if none is held.
std::int64_t slot_in(const RunConfig& config, const BlockTables& tables, Pool pool, std::int32_t row, int rows_a_page) {
  const std::vector<std::int32_t>& table = tables[static_cast<std::size_t>(pool)];
  const std::size_t item = static_cast<std::size_t>(row / rows_a_page);
  if (row < 0 || item >= table.size() || table[item] < 0) return -1;
  const std::int32_t page = table[item];
  if (page == layout::kNullPage || page >= config.pool_pages[static_cast<std::size_t>(pool)]) {
    throw InternalError("cuda engine: page " + std::to_string(page) + " of pool " + std::string(name(pool)) +
                        " for row " + std::to_string(row) + " is outside 1.." +
                        std::to_string(config.pool_pages[static_cast<std::size_t>(pool)] - 1));
  }
  return std::int64_t{page} * rows_a_page + row % rows_a_page;
}

std::int32_t held(std::int64_t slot, const char* what, std::int32_t request, std::int32_t row) {
  if (slot >= 0) return static_cast<std::int32_t>(slot);
  throw InternalError(std::string("cuda engine: no ") + what + " memory is held for row " + std::to_string(row) +
                      " of request " + std::to_string(request));
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

StepLayout::StepLayout(const RunConfig& config, const StepPlan& plan, DeviceMemory& memory, cudaStream_t stream) {
  tokens = static_cast<std::int64_t>(plan.rows.size());
  for (const Row& row : plan.rows) rows.position.host.push_back(row.request < 0 ? -1 : row.position);
  for (Ints* ints : {&rows.window_slot, &rows.window_table, &rows.entries_c4_table, &rows.entries_c128_table,
                     &rows.index_table}) {
    ints->host.assign(plan.rows.size(), -1);
  }
  bool csa = false;
  bool hca = false;
  for (const LayerKind kind : config.layers) {
    csa = csa || kind == LayerKind::csa;
    hca = hca || kind == LayerKind::hca;
  }
  for (const RequestStep& request : plan.requests) {
    std::array<std::int32_t, kPoolCount> offsets{};
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      offsets[pool] = static_cast<std::int32_t>(tables.host.size());
      const auto& table = (*request.tables)[pool];
      tables.host.insert(tables.host.end(), table.begin(), table.end());
    }
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const auto row = static_cast<std::size_t>(request.first_row + i);
      const std::int32_t p = request.begin + i;
      rows.window_table.host[row] = offsets[static_cast<std::size_t>(Pool::window)];
      rows.entries_c4_table.host[row] = offsets[static_cast<std::size_t>(Pool::entries_c4)];
      rows.entries_c128_table.host[row] = offsets[static_cast<std::size_t>(Pool::entries_c128)];
      rows.index_table.host[row] = offsets[static_cast<std::size_t>(Pool::index)];
      if (p >= request.from.window) {
        rows.window_slot.host[row] = static_cast<std::int32_t>(gpu::window_slot(config, *request.tables, p));
      }
      if (csa) widest_c4 = std::max(widest_c4, (p + 1) / 4);
      if (hca) widest_c128 = std::max(widest_c128, (p + 1) / 128);
    }
    if (csa) {
      add_compressor(config, request, LayerKind::csa, false, c4);
      add_compressor(config, request, LayerKind::csa, true, index);
    }
    if (hca) add_compressor(config, request, LayerKind::hca, false, c128);
  }
  upload(memory, stream);
}

void StepLayout::upload(DeviceMemory& memory, cudaStream_t stream) {
  std::vector<Ints*> arrays{&rows.position,           &rows.window_slot,        &rows.window_table,
                            &rows.entries_c4_table,   &rows.entries_c128_table, &rows.index_table,
                            &tables};
  for (CompressorStep* step : {&c4, &c128, &index}) {
    for (Ints* ints : {&step->entry_request, &step->entry_index, &step->entry_slot, &step->entry_position,
                       &step->source, &step->state_row, &step->state_slot, &step->online}) {
      arrays.push_back(ints);
    }
  }
  std::vector<std::int32_t> packed;
  for (const Ints* ints : arrays) packed.insert(packed.end(), ints->host.begin(), ints->host.end());
  auto* device = memory.get<std::int32_t>("step/layout", packed.size());
  DSV4_CUDA(cudaMemcpyAsync(device, packed.data(), packed.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream));
  DSV4_CUDA(cudaStreamSynchronize(stream));  // `packed` is pageable and goes away
  for (Ints* ints : arrays) {
    ints->device = device;
    device += ints->size();
  }
}

}  // namespace dsv4::gpu
