/// A stamp for every slot of every cache: whose row of which token lies there, and since when. Memory of the
/// stamps grows with the pages that were written.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "oracle/slots.hpp"

namespace dsv4::oracle {

struct Stamp {
  std::int32_t request = -1;
  std::int32_t index = -1;    ///< token position or entry index
  std::int32_t step = -1;     ///< that computed the row; -1: never written
  std::int32_t placed = -1;   ///< step in which it came to this slot: later than `step` for a copy
  std::uint64_t content = 0;  ///< of the token, or of an entry's last one; 0: unknown
};

/// One cache of one layer.
class CacheShadow {
 public:
  explicit CacheShadow(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  /// The stamp of a slot; null if nothing on its page (state base) was ever written.
  const Stamp* find(std::int64_t slot) const;
  void put(std::int64_t slot, const Stamp& stamp) { *make(slot) = stamp; }
  /// Copies the first rows of a page as they are.
  void copy(std::int64_t from, std::int64_t to, std::int64_t rows, std::int32_t step);

  /// The page or state base of a slot.
  std::int64_t unit(std::int64_t slot) const { return slot / rows_; }
  std::int64_t row(std::int64_t slot) const { return slot % rows_; }

 private:
  Stamp* make(std::int64_t slot);

  CacheShape shape_;
  std::int64_t rows_;
  std::unordered_map<std::int64_t, std::vector<Stamp>> units_;
  mutable std::int64_t last_unit_ = -1;  ///< looked up last: rows are read in order
  mutable const std::vector<Stamp>* last_ = nullptr;
};

class ShadowMap {
 public:
  explicit ShadowMap(const RunConfig& config);
  bool has(int layer, Cache cache) const;
  CacheShadow& at(int layer, Cache cache);

 private:
  std::vector<std::vector<CacheShadow>> caches_;  ///< by layer, in the order of Cache
  std::vector<std::array<int, kCacheCount>> places_;
};

}  // namespace dsv4::oracle
