#include "reference/layer_caches.hpp"

#include <fmt/format.h>

#include "model/error.hpp"
#include "reference/slots.hpp"

namespace dsv4::reference {
namespace {

constexpr std::array kCaches{Cache::window, Cache::entries, Cache::index_entries, Cache::state,
                             Cache::index_state};

/// f32 channels of a state row: kv and score, or online max, sum and kv.
int state_bytes(const RunConfig& config, LayerKind kind, Cache cache) {
  const int d = cache == Cache::state ? kHeadDim : kIndexDim;
  if (online_state(config.cache, kind)) return 3 * d * 4;
  return 2 * compressor_channels(kind, d) * 4;
}

}  // namespace

RowShape row_shape(const RunConfig& config, LayerKind kind, Cache cache) {
  RowShape shape;
  const auto pages = config.pool_pages[static_cast<std::size_t>(pool_of(kind, cache))];
  if (cache == Cache::state || cache == Cache::index_state) {
    shape.value_bytes = state_bytes(config, kind, cache);
    if (state_form(config.cache, kind) == StateForm::paged) {
      shape.unit_rows = page_rows(config.cache, kind, cache);
      shape.units = pages;
      shape.null_unit = true;
    } else {
      shape.units = std::int64_t{config.state_bases} * state_rows(config.cache, kind);
    }
    shape.pitch = std::int64_t{shape.unit_rows} * shape.value_bytes;
    return shape;
  }
  shape.unit_rows = page_rows(config.cache, kind, cache);
  shape.units = pages;
  shape.null_unit = true;
  if (cache == Cache::index_entries) {
    const auto rows = config.profile.get<IndexCache>();
    const layout::RowForm form = layout::row_form(rows);
    shape.value_bytes = form.value_bytes;
    shape.scale_bytes = form.scale_bytes;
    shape.pitch = layout::page_bytes(rows, shape.unit_rows);
  } else {
    const auto rows = config.profile.get<KvCache>();
    const layout::RowForm form = layout::row_form(rows);
    shape.value_bytes = form.value_bytes;
    shape.scale_bytes = form.scale_bytes;
    shape.pitch = layout::page_bytes(rows, shape.unit_rows);
  }
  if (config.cache.pitch) {
    if (*config.cache.pitch < shape.pitch) {
      throw UsageError(fmt::format("cache pitch {} is smaller than a page of {} ({} bytes)",
                                   *config.cache.pitch, name(cache), shape.pitch));
    }
    shape.pitch = *config.cache.pitch;
  }
  return shape;
}

LayerCaches::LayerCaches(const RunConfig& config, int layer)
    : config_(config), layer_(layer), kind_(config.layers.at(static_cast<std::size_t>(layer))) {
  for (const Cache cache : kCaches) {
    if (!has_cache(kind_, cache)) continue;
    stores_[static_cast<std::size_t>(cache)].emplace(fmt::format("layer {} {}", layer, name(cache)),
                                                     row_shape(config, kind_, cache));
  }
}

RowStore& LayerCaches::at(Cache cache) {
  return const_cast<RowStore&>(static_cast<const LayerCaches&>(*this).at(cache));
}

const RowStore& LayerCaches::at(Cache cache) const {
  const auto& store = stores_[static_cast<std::size_t>(cache)];
  if (!store) throw InternalError(fmt::format("layer {} ({}) has no {}", layer_, name(kind_), name(cache)));
  return *store;
}

std::optional<Cache> LayerCaches::cache_of(Pool pool) const {
  for (const Cache cache : kCaches) {
    if (has(cache) && at(cache).paged() && pool_of(kind_, cache) == pool) return cache;
  }
  return std::nullopt;
}

void LayerCaches::copy(const PageCopy& copy) {
  if (const auto cache = cache_of(copy.pool)) at(*cache).copy_rows(copy.from, copy.to, copy.rows);
}

void LayerCaches::fill_page(const PageRef& page, std::uint8_t value) {
  if (const auto cache = cache_of(page.pool)) at(*cache).fill_unit(page.page, value);
}

void LayerCaches::fill_base(std::int32_t base, std::uint8_t value) {
  for (const Cache cache : {Cache::state, Cache::index_state}) {
    if (!has(cache) || at(cache).paged()) continue;
    const std::int64_t rows = state_rows(config_.cache, kind_);
    for (std::int64_t row = 0; row < rows; ++row) at(cache).fill_unit(base * rows + row, value);
  }
}

void LayerCaches::append_live(Cache cache, const LiveRequest& live, std::vector<std::byte>& out) const {
  const RowStore& store = at(cache);
  const Slots slots(config_, layer_, live);
  const auto append = [&](std::int64_t slot) {
    const std::size_t end = out.size();
    out.resize(end + static_cast<std::size_t>(store.shape().row_bytes()));
    store.read(slot, std::span(out).subspan(end));
  };
  switch (cache) {
    case Cache::window:
      for (std::int32_t p = first_live_window(live.length); p < live.length; ++p) {
        if (const std::int64_t slot = slots.find(cache, p); slot >= 0) append(slot);
      }
      return;
    case Cache::entries:
    case Cache::index_entries:
      for (std::int32_t j = 0; j < live_entries(kind_, live.length); ++j) append(slots.at(cache, j));
      return;
    case Cache::state:
    case Cache::index_state:
      if (online_state(config_.cache, kind_)) {
        // Between windows the running row holds nothing that anybody may read (12.5).
        if (live.length % ratio(kind_) != 0) append(slots.bank(0));
        return;
      }
      for (std::int32_t p = first_live_state(kind_, live.length); p < live.length; ++p)
        append(slots.at(cache, p));
      return;
  }
}

}  // namespace dsv4::reference
