#include "io/dump_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/config_check.hpp"
#include "model/layout.hpp"
#include "model/tensor_shape.hpp"

namespace dsv4::io {
namespace {

constexpr std::int64_t kAnySlot = std::int64_t{1} << 31;

[[noreturn]] void refuse(const std::string& file, const std::string& object, const std::string& why) {
  throw FileError(file + ": " + object + " " + why);
}

/// Values from `lowest` on and below `end`.
struct Range {
  std::int64_t lowest;
  std::int64_t end;
};

void check_values(const Tensor& tensor, Range range, const std::string& file, const std::string& object) {
  const auto values = tensor.as<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= range.lowest && values[i] < range.end) continue;
    refuse(file, object,
           fmt::format("holds {} at element {}; {} to {} is possible here", values[i], i, range.lowest,
                       range.end - 1));
  }
}

/// One past the last request index; files without names may use any.
std::int64_t request_end(const RunConfig& config) {
  return config.requests.empty() ? kMaxTokens : static_cast<std::int64_t>(config.requests.size());
}

/// One past the last page and slot of a pool, as far as the file says how many pages there are.
std::int64_t page_end(const RunConfig& config, Pool pool) {
  const std::int64_t pages = config.pool_pages[static_cast<std::size_t>(pool)];
  return pages > 0 ? pages : kAnySlot;
}
std::int64_t slot_end(const RunConfig& config, Pool pool, std::int64_t rows) {
  const std::int64_t pages = config.pool_pages[static_cast<std::size_t>(pool)];
  return pages > 0 ? std::min(pages * rows, kAnySlot) : kAnySlot;
}

std::int64_t entry_slot_end(const RunConfig& config, LayerKind kind) {
  const bool csa = kind == LayerKind::csa;
  return slot_end(config, pool_of(kind, Cache::entries), csa ? config.cache.c4_page : config.cache.c128_page);
}

std::int64_t state_slot_end(const RunConfig& config, LayerKind kind, Cache cache) {
  const CacheConfig& c = config.cache;
  const bool csa = kind == LayerKind::csa;
  const bool paged = csa ? c.c4_state != C4State::ring : c.c128_state == C128State::paged;
  if (paged) {
    return slot_end(config, pool_of(kind, cache),
                    csa ? layout::kStatePageRowsC4 : layout::kStatePageRowsC128);
  }
  if (config.state_bases == 0) return kAnySlot;
  const bool online = !csa && c.c128_state == C128State::online;
  const int rows = online ? online_banks(c) : csa ? ring_rows_c4(c) : ring_rows_c128(c);
  return std::min(std::int64_t{config.state_bases} * rows, kAnySlot);
}

/// What an index tensor may hold. Padding is -1 everywhere.
Range values_of(TensorId id, const RunConfig& config, LayerKind kind, std::int64_t tokens) {
  using enum TensorId;
  switch (id) {
    case compress_pool_request:
    case compress_request:
    case indexer_pool_request:
    case indexer_request:
      return {-1, request_end(config)};
    case compress_slot:
    case compressed_slots:
      return {-1, has_compressor(kind) ? entry_slot_end(config, kind) : kAnySlot};
    case indexer_slot:
      return {-1, slot_end(config, Pool::index, config.cache.index_page)};
    case window_slots:
      return {-1, slot_end(config, Pool::window, config.cache.swa_page)};
    case compress_state_slot:
      return {-1, has_compressor(kind) ? state_slot_end(config, kind, Cache::state) : kAnySlot};
    case indexer_state_slot:
      return {-1, has_indexer(kind) ? state_slot_end(config, kind, Cache::index_state) : kAnySlot};
    case compress_state_token:
    case indexer_state_token:
      return {0, tokens};
    default:  // positions, entries, counts and lengths
      return {-1, std::int64_t{kMaxTokens} + 1};
  }
}

/// The profile decides how cache rows and index codes are packed; their widths are compared, not prescribed.
bool packed_by_profile(TensorId id) {
  using enum TensorId;
  return id == window_page_bytes || id == compress_page_bytes || id == indexer_page_bytes ||
         id == indexer_scales || id == query_scales;
}

void check_shape(const Tensor& tensor, TensorId id, const RunConfig& config, LayerKind kind,
                 std::int64_t tokens, const std::string& file, const std::string& object) {
  const TensorInfo& about = info(id);
  const auto axes = static_cast<std::size_t>(std::ranges::count(about.dims, ',')) + 1;
  const std::vector<std::int64_t>& shape = tensor.shape();
  if (shape.size() != axes) {
    refuse(file, object, fmt::format("has {} axes, the catalogue says '{}'", shape.size(), about.dims));
  }
  if (about.dims.starts_with("token") && shape[0] != tokens) {
    refuse(file, object, fmt::format("has {} rows, the batch of its step has {}", shape[0], tokens));
  }
  const std::optional<std::int64_t> width =
      packed_by_profile(id) ? std::nullopt : row_width(config, kind, id);
  const bool heads = about.dims.starts_with("token,head");
  const std::int64_t expected_heads =
      about.stage == Stage::indexer_query ? config.geometry.index_heads : config.geometry.heads;
  if ((width && tensor.row_elements() != *width) || (heads && shape[1] != expected_heads)) {
    refuse(file, object,
           fmt::format("has the shape [{}]; with the geometry and profile of /config a row of '{}' has {} "
                       "elements",
                       fmt::join(shape, ", "), about.dims, width.value_or(0)));
  }
}

void check_dtype(const Tensor& tensor, TensorId id, bool unrounded, const std::string& file,
                 const std::string& object) {
  const DType expected = unrounded ? DType::float64 : info(id).dtype;
  const auto is_integer = [](DType dtype) { return dtype == DType::int32 || dtype == DType::uint8; };
  const bool fits =
      unrounded || is_integer(expected) ? tensor.dtype() == expected : !is_integer(tensor.dtype());
  if (!fits) {
    refuse(file, object, fmt::format("is {}, the catalogue says {}", name(tensor.dtype()), name(expected)));
  }
}

}  // namespace

void check_plain_text(const std::string& text, const std::string& file, const std::string& object) {
  if (text.empty() || text.size() > 256) {
    refuse(file, object, fmt::format("is {} bytes long; 1 to 256 are possible", text.size()));
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F)
      refuse(file, object, fmt::format("holds the control character {}", byte));
  }
}

void check_event(const std::string& event, const std::string& file, const std::string& object) {
  const auto parsed = nlohmann::json::parse(event, nullptr, false);
  if (!parsed.is_object()) refuse(file, object, "has an event that is no JSON object");
}

void check_batch(const BatchTables& batch, const RunConfig& config, const std::string& file,
                 const std::string& group) {
  check_values(batch.request, {-1, request_end(config)}, file, group + "/request");
  check_values(batch.position, {-1, kMaxTokens}, file, group + "/position");
  check_values(batch.slot, {-1, slot_end(config, Pool::window, config.cache.swa_page)}, file,
               group + "/slot");
  check_values(batch.page, {-1, page_end(config, Pool::window)}, file, group + "/page");
  const auto requests = batch.request.as<std::int32_t>();
  const auto positions = batch.position.as<std::int32_t>();
  for (std::size_t row = 0; row < requests.size(); ++row) {
    if ((requests[row] < 0) != (positions[row] < 0)) {
      refuse(file, group + "/position",
             fmt::format("is {} in row {}, whose request is {}; padding is -1 in both", positions[row], row,
                         requests[row]));
    }
  }
  const auto prefix = batch.prefix.as<std::int32_t>();
  for (std::size_t i = 0; i + 2 < prefix.size(); i += 3) {
    const bool known = prefix[i] >= 0 && prefix[i] < request_end(config) && prefix[i + 1] >= 0 &&
                       prefix[i + 1] < request_end(config);
    if (!known || prefix[i + 2] < 1 || prefix[i + 2] > kMaxTokens) {
      refuse(file, group + "/prefix",
             fmt::format("holds [{}, {}, {}]; request, source and tokens are expected", prefix[i],
                         prefix[i + 1], prefix[i + 2]));
    }
  }
}

void check_tensor(const Tensor& tensor, TensorId id, bool unrounded, const RunConfig& config, int layer,
                  const BatchTables& batch, const std::string& file, const std::string& object) {
  const LayerKind kind = config.layers.at(static_cast<std::size_t>(layer));
  const std::int64_t tokens = batch.request.dim(0);
  check_dtype(tensor, id, unrounded, file, object);
  check_shape(tensor, id, config, kind, tokens, file, object);
  if (tensor.dtype() == DType::int32) check_values(tensor, values_of(id, config, kind, tokens), file, object);
}

void check_tables(const TableState& tables, const RunConfig& config, const std::string& file,
                  const std::string& group) {
  const auto rows = [&](const Tensor& table, std::string_view table_name, std::int64_t columns) {
    if (table.dtype() != DType::int32 || table.shape().size() != 2 || table.dim(1) != columns)
      refuse(file, fmt::format("{}/{}", group, table_name), fmt::format("is not int32 with {} columns", columns));
    return table.as<std::int32_t>();
  };
  const auto value = [&](std::string_view table_name, std::int64_t found, std::int64_t end) {
    if (found >= 0 && found < end) return;
    refuse(file, fmt::format("{}/{}", group, table_name),
           fmt::format("holds {} where 0 to {} is possible", found, end - 1));
  };
  const auto pool_and_page = [&](std::string_view table_name, std::int32_t pool, std::int32_t page) {
    value(table_name, pool, static_cast<std::int64_t>(kPoolCount));
    value(table_name, page, page_end(config, static_cast<Pool>(pool)));
  };
  const auto blocks = rows(tables.blocks, "block_tables", 4);
  for (std::size_t i = 0; i < blocks.size(); i += 4) {
    pool_and_page("block_tables", blocks[i], blocks[i + 3]);
    value("block_tables", blocks[i + 1], request_end(config));
    value("block_tables", blocks[i + 2], kMaxTokens);
  }
  const auto holders = rows(tables.holders, "holders", 3);
  for (std::size_t i = 0; i < holders.size(); i += 3) {
    pool_and_page("holders", holders[i], holders[i + 1]);
    value("holders", holders[i + 2], request_end(config) + 1);
  }
  const auto free = rows(tables.free, "free_pages", 2);
  for (std::size_t i = 0; i < free.size(); i += 2) pool_and_page("free_pages", free[i], free[i + 1]);
  const auto bases = rows(tables.bases, "state_bases", 2);
  for (std::size_t i = 0; i < bases.size(); i += 2) {
    value("state_bases", bases[i], request_end(config));
    value("state_bases", bases[i + 1], config.state_bases > 0 ? config.state_bases : kAnySlot);
  }
}

void check_snapshot(const Tensor& tensor, const std::string& file, const std::string& object) {
  const bool known = tensor.dtype() == DType::uint8 || tensor.dtype() == DType::float32;
  if (!known || tensor.shape().size() != 2)
    refuse(file, object, "is no snapshot: neither uint8 [page, byte] nor float32 [row, channel]");
}

}  // namespace dsv4::io
