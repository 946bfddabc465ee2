/// Where rows of caches lie, as the drivers need it: batch tables, synthetic rows and the write-set check.
/// Written apart from every engine, so that an engine's slot arithmetic is checked against it
/// (docs/numerics.md 12.2, 14 and 20).
#pragma once

#include <cstdint>

#include "model/engine.hpp"

namespace dsv4::oracle {

/// How the rows of one cache of one layer are addressed.
struct CacheShape {
  bool paged = false;        ///< through a block table; else by state base
  Pool pool = Pool::window;  ///< behind the block table, paged only
  int page_rows = 1;         ///< rows (entries) a page; 1 when not paged
  int base_rows = 1;         ///< rows a state base: ring rows or online banks; not paged only
  bool online = false;       ///< rows hold max, sum, kv
  int channels = 0;          ///< state caches: width of one part of a row
  int value_bytes = 0;       ///< page caches: value bytes of a row (576, 128, 64)
  int scale_bytes = 0;       ///< page caches: scale bytes of a row (8, 4)
  std::int64_t rows_bytes() const { return std::int64_t{page_rows} * row_bytes(); }
  std::int64_t row_bytes() const {
    return channels > 0 ? std::int64_t{4} * channels * (online ? 3 : 2) : value_bytes + scale_bytes;
  }
};

CacheShape cache_shape(const RunConfig& config, int layer, Cache cache);

/// Number of physical rows that Engine::read_row of a cache knows: pages, or state rows of all bases.
std::int64_t physical_rows(const RunConfig& config, const CacheShape& shape);

/// Bytes of all caches of a run, page padding not counted.
std::int64_t cache_bytes(const RunConfig& config);

/// The slot of a token position (or entry index) of a request; -1 where its page is not held.
/// `bank` counts for online state only.
std::int64_t slot_of(const CacheShape& shape, const BlockTables& tables, std::int32_t state_base,
                     std::int32_t index, int bank = 0);

}  // namespace dsv4::oracle
