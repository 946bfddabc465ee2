#include "wide/caches.hpp"

#include <cstring>
#include <string>

#include "model/error.hpp"
#include "model/layout.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::vector<std::byte> bytes_of(std::span<const double> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// 448 codes, 64 bf16, 7 scales, a spare byte.
void decode_kv(const std::byte* row, double* out) {
  for (int i = 0; i < kNopeDim; ++i) {
    const auto scale = std::to_integer<std::uint8_t>(row[layout::kKvValueBytes + i / layout::kKvBlock]);
    out[i] = e4m3_value(std::to_integer<std::uint8_t>(row[i])) * ue8m0_value(scale);
  }
  for (int i = 0; i < kRopeDim; ++i)
    out[kNopeDim + i] = bf16_value(load<std::uint16_t>(row + kNopeDim + 2 * i));
}

void decode_index_fp4(const std::byte* row, double* out) {
  for (int i = 0; i < kIndexDim; ++i) {
    const auto pair = std::to_integer<unsigned>(row[i / 2]);
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? pair & 0xFU : pair >> 4);
    const std::byte scale = row[layout::kIndexFp4ValueBytes + i / layout::kIndexFp4Block];
    out[i] = e2m1_value(code) * ue8m0_value(std::to_integer<std::uint8_t>(scale));
  }
}

void decode_plain(const std::byte* row, int n, bool f16, double* out) {
  for (int i = 0; i < n; ++i) {
    const auto code = load<std::uint16_t>(row + 2 * i);
    out[i] = f16 ? f16_value(code) : bf16_value(code);
  }
}

double decode_index_fp8(const std::byte* row, double* out) {
  for (int i = 0; i < kIndexDim; ++i) out[i] = e4m3_value(std::to_integer<std::uint8_t>(row[i]));
  return load<float>(row + kIndexDim);
}

bool is_state(Cache cache) {
  return cache == Cache::state || cache == Cache::index_state;
}

std::size_t at(Cache cache) {
  return static_cast<std::size_t>(cache);
}

}  // namespace

Caches::Caches(const RunConfig& config, int layer)
    : kind_(config.layers.at(static_cast<std::size_t>(layer))),
      exact_(config.profile.exact),
      kv_cache_(config.profile.get<KvCache>()),
      index_cache_(config.profile.get<IndexCache>()),
      online_(kind_ == LayerKind::hca && config.cache.c128_state == C128State::online) {
  const CacheConfig& cache_config = config.cache;
  for (std::size_t c = 0; c < kCacheCount; ++c) {
    const auto cache = static_cast<Cache>(c);
    if (!has_cache(kind_, cache)) continue;
    const Pool pool = pool_of(kind_, cache);
    RowMemory::Shape shape;
    shape.what = std::string(name(cache)) + " rows";
    shape.pages = config.pool_pages[static_cast<std::size_t>(pool)];
    if (is_state(cache)) {
      const std::int64_t width = compressor_channels(kind_, cache == Cache::state ? kHeadDim : kIndexDim);
      shape.value_bytes = width * (online_ ? 3 : 2) * (exact_ ? 8 : 4);
      const bool ring = kind_ == LayerKind::csa ? cache_config.c4_state == C4State::ring
                                                : cache_config.c128_state == C128State::ring;
      by_base_[c] = ring || online_;
      if (by_base_[c]) {
        base_rows_[c] = online_                   ? online_banks(cache_config)
                        : kind_ == LayerKind::csa ? ring_rows_c4(cache_config)
                                                  : ring_rows_c128(cache_config);
        shape.pages = base_rows_[c] * config.state_bases;
      } else {
        shape.page_rows = kind_ == LayerKind::csa ? layout::kStatePageRowsC4 : layout::kStatePageRowsC128;
      }
      shape.pitch = shape.page_rows * shape.value_bytes;
    } else {
      const bool index = cache == Cache::index_entries;
      shape.page_rows = cache == Cache::window    ? cache_config.swa_page
                        : index                   ? cache_config.index_page
                        : kind_ == LayerKind::csa ? cache_config.c4_page
                                                  : cache_config.c128_page;
      const auto rows = static_cast<int>(shape.page_rows);
      if (exact_) {
        shape.value_bytes = 8 * (index ? kIndexDim : kHeadDim);
        shape.pitch = shape.page_rows * shape.value_bytes;
      } else {
        const layout::RowForm form = index ? layout::row_form(index_cache_) : layout::row_form(kv_cache_);
        shape.value_bytes = form.value_bytes;
        shape.scale_bytes = form.scale_bytes;
        const std::int64_t natural =
            index ? layout::page_bytes(index_cache_, rows) : layout::page_bytes(kv_cache_, rows);
        shape.pitch = cache_config.pitch.value_or(natural);
      }
    }
    memories_[c].emplace(std::move(shape));
  }
}

RowMemory& Caches::memory(Cache cache) {
  require(memories_[at(cache)].has_value(), "a layer was asked for a cache that it does not have");
  return *memories_[at(cache)];
}
const RowMemory& Caches::memory(Cache cache) const {
  require(memories_[at(cache)].has_value(), "a layer was asked for a cache that it does not have");
  return *memories_[at(cache)];
}

std::int64_t Caches::slot(Cache cache, const Residence& home, std::int32_t index) const {
  if (by_base_[at(cache)]) {
    require(!online_ && home.state_base >= 0, "ring state of a request without a state base");
    return home.state_base * base_rows_[at(cache)] + index % base_rows_[at(cache)];
  }
  const auto& table = home.tables[static_cast<std::size_t>(pool_of(kind_, cache))];
  const std::int64_t rows = memory(cache).shape().page_rows;
  const auto item = static_cast<std::size_t>(index / rows);
  if (item >= table.size() || table[item] < 0) return -1;
  return table[item] * rows + index % rows;
}

std::int64_t Caches::online_slot(const Residence& home, std::int32_t bank) const {
  const std::int64_t banks = base_rows_[at(Cache::state)];
  require(online_ && home.state_base >= 0 && bank < banks, "online state has no such bank");
  return home.state_base * banks + bank;
}

void Caches::put(Cache cache, std::int64_t slot, std::span<const std::byte> bytes) {
  RowMemory& rows = memory(cache);
  if (exact_ && bytes.size() != rows.row_bytes()) {
    rows.set_row(slot, widened(cache, bytes));
  } else {
    rows.set_row(slot, bytes);
  }
}

std::vector<std::byte> Caches::widened(Cache cache, std::span<const std::byte> bytes) const {
  std::vector<double> values;
  if (is_state(cache)) {
    for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) values.push_back(load<float>(bytes.data() + i));
  } else if (bytes.size() == layout::kKvRowBytes) {
    values.resize(kHeadDim);
    decode_kv(bytes.data(), values.data());
  } else if (bytes.size() == layout::kIndexFp8RowBytes) {
    values.resize(kIndexDim);
    const double scale = decode_index_fp8(bytes.data(), values.data());
    for (double& value : values) value *= scale;
  } else if (bytes.size() == layout::kIndexFp4RowBytes) {
    values.resize(kIndexDim);
    decode_index_fp4(bytes.data(), values.data());
  } else {
    throw UsageError(
        "a row of " + std::to_string(bytes.size()) +
        " bytes says neither bf16 nor f16: profile exact cannot be fed from a cache without codes");
  }
  return bytes_of(values);
}

void Caches::read_kv(Cache cache, std::int64_t slot, double* out) const {
  const std::vector<std::byte> row = memory(cache).row(slot);
  if (exact_) {
    std::memcpy(out, row.data(), row.size());
  } else if (layout::plain(kv_cache_)) {
    decode_plain(row.data(), kHeadDim, kv_cache_ == KvCache::f16, out);
  } else {
    decode_kv(row.data(), out);
  }
}

double Caches::read_index(std::int64_t slot, double* out) const {
  const std::vector<std::byte> row = memory(Cache::index_entries).row(slot);
  if (exact_) {
    std::memcpy(out, row.data(), row.size());
    return 1;
  }
  if (index_cache_ == IndexCache::fp8) return decode_index_fp8(row.data(), out);
  if (index_cache_ == IndexCache::fp4) {
    decode_index_fp4(row.data(), out);
  } else {
    decode_plain(row.data(), kIndexDim, index_cache_ == IndexCache::f16, out);
  }
  return 1;
}

std::vector<double> Caches::read_state(Cache cache, std::int64_t slot) const {
  const std::vector<std::byte> row = memory(cache).row(slot);
  const std::size_t size = exact_ ? 8 : 4;
  std::vector<double> values(row.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = exact_ ? load<double>(row.data() + i * size) : load<float>(row.data() + i * size);
  }
  return values;
}

std::vector<std::byte> Caches::state_bytes(std::span<const double> values) const {
  if (exact_) return bytes_of(values);
  std::vector<std::byte> bytes;
  bytes.reserve(values.size() * 4);
  for (const double value : values) append(bytes, static_cast<float>(value));
  return bytes;
}

std::optional<Cache> Caches::cache_of(Pool pool) const {
  for (std::size_t c = 0; c < kCacheCount; ++c) {
    const auto cache = static_cast<Cache>(c);
    if (memories_[c] && !by_base_[c] && pool_of(kind_, cache) == pool) return cache;
  }
  return std::nullopt;
}

void Caches::copy(const PageCopy& copy) {
  if (const auto cache = cache_of(copy.pool)) memory(*cache).copy_rows(copy.from, copy.to, copy.rows);
}

void Caches::fill(const PageRef& page, std::uint8_t value) {
  if (const auto cache = cache_of(page.pool)) memory(*cache).fill_page(page.page, value);
}

void Caches::fill_base(std::int32_t base, std::uint8_t value) {
  for (std::size_t c = 0; c < kCacheCount; ++c) {
    if (!memories_[c] || !by_base_[c]) continue;
    for (std::int64_t i = 0; i < base_rows_[c]; ++i) memories_[c]->fill_page(base * base_rows_[c] + i, value);
  }
}

void Caches::append_live(Cache cache, const LiveRequest& live, std::vector<std::byte>& out) const {
  const Residence home{*live.tables, live.state_base};
  const auto append_row = [&](std::int64_t slot) {
    const std::vector<std::byte> row = memory(cache).row(slot);
    out.insert(out.end(), row.begin(), row.end());
  };
  if (is_state(cache) && online_) {
    if (live.length % ratio(kind_) != 0) append_row(online_slot(home, 0));
    return;
  }
  const bool entries = cache == Cache::entries || cache == Cache::index_entries;
  const std::int32_t first = entries                  ? 0
                             : cache == Cache::window ? first_live_window(live.length)
                                                      : first_live_state(kind_, live.length);
  const std::int32_t end = entries ? live_entries(kind_, live.length) : live.length;
  for (std::int32_t index = first; index < end; ++index) {
    const std::int64_t where = slot(cache, home, index);
    if (where >= 0) {
      append_row(where);
    } else if (cache != Cache::window) {  // only windows may be evicted while their request lives
      throw InternalError("a live row of " + memory(cache).shape().what + " has no page");
    }
  }
}

}  // namespace dsv4::wide
