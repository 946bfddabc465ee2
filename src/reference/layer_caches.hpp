/// The caches of one layer: a row store each (docs/numerics.md 12, page layouts), sized by the run
/// configuration.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "model/step_plan.hpp"
#include "reference/row_store.hpp"

namespace dsv4::reference {

class LayerCaches {
 public:
  /// Throws UsageError when `pitch` is smaller than a page.
  LayerCaches(const RunConfig& config, int layer);

  bool has(Cache cache) const { return stores_[static_cast<std::size_t>(cache)].has_value(); }
  /// Throws InternalError when the layer has no such cache.
  RowStore& at(Cache cache);
  const RowStore& at(Cache cache) const;

  /// Lifecycle of a step (src/model/step_plan.hpp); pools that this layer does not use are ignored.
  void copy(const PageCopy& copy);
  void fill_page(const PageRef& page, std::uint8_t value);
  /// Every row of a state base, of both compressors.
  void fill_base(std::int32_t base, std::uint8_t value);

  /// Live rows of a request in logical order, appended to `out` (12.3). Window rows whose page is not held
  /// (an evicted window) are left out.
  void append_live(Cache cache, const LiveRequest& live, std::vector<std::byte>& out) const;

 private:
  std::optional<Cache> cache_of(Pool pool) const;

  const RunConfig& config_;
  int layer_;
  LayerKind kind_;
  std::array<std::optional<RowStore>, kCacheCount> stores_;
};

/// Shape of a cache's rows and units.
RowShape row_shape(const RunConfig& config, LayerKind kind, Cache cache);

}  // namespace dsv4::reference
