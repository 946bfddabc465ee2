#include "oracle/slots.hpp"

#include "model/layout.hpp"

namespace dsv4::oracle {
namespace {

CacheShape state_shape(const RunConfig& config, LayerKind kind, int width, Pool pool) {
  CacheShape shape;
  shape.channels = compressor_channels(kind, width);
  shape.pool = pool;
  if (kind == LayerKind::csa) {
    shape.paged = config.cache.c4_state != C4State::ring;
    shape.page_rows = shape.paged ? layout::kStatePageRowsC4 : 1;
    shape.base_rows = ring_rows_c4(config.cache);
    return shape;
  }
  shape.paged = config.cache.c128_state == C128State::paged;
  shape.online = config.cache.c128_state == C128State::online;
  shape.page_rows = shape.paged ? layout::kStatePageRowsC128 : 1;
  shape.base_rows = shape.online ? online_banks(config.cache) : ring_rows_c128(config.cache);
  return shape;
}

}  // namespace

CacheShape cache_shape(const RunConfig& config, int layer, Cache cache) {
  const LayerKind kind = config.layers.at(static_cast<std::size_t>(layer));
  CacheShape shape;
  shape.paged = true;
  shape.pool = pool_of(kind, cache);
  switch (cache) {
    case Cache::window:
    case Cache::entries:
      shape.value_bytes = layout::row_form(config.profile.get<KvCache>()).value_bytes;
      shape.scale_bytes = layout::row_form(config.profile.get<KvCache>()).scale_bytes;
      shape.page_rows = cache == Cache::window   ? config.cache.swa_page
                        : kind == LayerKind::csa ? config.cache.c4_page
                                                 : config.cache.c128_page;
      return shape;
    case Cache::index_entries: {
      const layout::RowForm row = layout::row_form(config.profile.get<IndexCache>());
      shape.value_bytes = row.value_bytes;
      shape.scale_bytes = row.scale_bytes;
      shape.page_rows = config.cache.index_page;
      return shape;
    }
    case Cache::state:
      return state_shape(config, kind, kHeadDim, shape.pool);
    case Cache::index_state:
      return state_shape(config, kind, kIndexDim, shape.pool);
  }
  throw InternalError("unknown cache");
}

std::int64_t physical_rows(const RunConfig& config, const CacheShape& shape) {
  if (shape.paged) return config.pool_pages[static_cast<std::size_t>(shape.pool)];
  return std::int64_t{config.state_bases} * shape.base_rows;
}

std::int64_t cache_bytes(const RunConfig& config) {
  std::int64_t bytes = 0;
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(config.layers[static_cast<std::size_t>(layer)], cache)) continue;
      const CacheShape shape = cache_shape(config, layer, cache);
      bytes += physical_rows(config, shape) * shape.rows_bytes();
    }
  }
  return bytes;
}

std::int64_t slot_of(const CacheShape& shape, const BlockTables& tables, std::int32_t state_base,
                     std::int32_t index, int bank) {
  if (shape.online) return std::int64_t{state_base} * shape.base_rows + bank;
  if (!shape.paged) return std::int64_t{state_base} * shape.base_rows + index % shape.base_rows;
  const auto& table = tables[static_cast<std::size_t>(shape.pool)];
  const auto item = static_cast<std::size_t>(index / shape.page_rows);
  if (item >= table.size() || table[item] < 0) return -1;
  return std::int64_t{table[item]} * shape.page_rows + index % shape.page_rows;
}

}  // namespace dsv4::oracle
