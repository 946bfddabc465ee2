#include "oracle/lifetime/shadow_map.hpp"

#include "model/error.hpp"

namespace dsv4::oracle {

CacheShadow::CacheShadow(const CacheShape& shape)
    : shape_(shape), rows_(shape.paged ? shape.page_rows : shape.base_rows) {}

const Stamp* CacheShadow::find(std::int64_t slot) const {
  const std::int64_t at = unit(slot);
  if (at != last_unit_ || last_ == nullptr) {
    const auto found = units_.find(at);
    if (found == units_.end()) return nullptr;
    last_unit_ = at;
    last_ = &found->second;  // elements of an unordered_map stay where they are
  }
  return &(*last_)[static_cast<std::size_t>(row(slot))];
}

Stamp* CacheShadow::make(std::int64_t slot) {
  std::vector<Stamp>& stamps = units_[unit(slot)];
  if (stamps.empty()) stamps.resize(static_cast<std::size_t>(rows_));
  return &stamps[static_cast<std::size_t>(row(slot))];
}

void CacheShadow::copy(std::int64_t from, std::int64_t to, std::int64_t rows, std::int32_t step) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const Stamp* source = find(from * rows_ + row);
    Stamp stamp = source == nullptr ? Stamp{} : *source;
    if (stamp.step >= 0) stamp.placed = step;
    put(to * rows_ + row, stamp);
  }
}

ShadowMap::ShadowMap(const RunConfig& config) : caches_(config.layers.size()), places_(config.layers.size()) {
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    places_[layer].fill(-1);
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(config.layers[layer], cache)) continue;
      places_[layer][c] = static_cast<int>(caches_[layer].size());
      caches_[layer].emplace_back(cache_shape(config, static_cast<int>(layer), cache));
    }
  }
}

bool ShadowMap::has(int layer, Cache cache) const {
  return places_.at(static_cast<std::size_t>(layer))[static_cast<std::size_t>(cache)] >= 0;
}

CacheShadow& ShadowMap::at(int layer, Cache cache) {
  require(has(layer, cache), "a layer's shadow of a cache that it does not have");
  const int place = places_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(cache)];
  return caches_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(place)];
}

}  // namespace dsv4::oracle
