#include "cli/inspect_rows.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "cli/json_lines.hpp"
#include "io/decode.hpp"

namespace dsv4::cli {
namespace {

struct CacheTensors {
  Cache cache;
  const char* snapshot;
  TensorId bytes;
  std::optional<TensorId> slot;  ///< empty: the batch's slots
};

CacheTensors cache_tensors(const std::string& name) {
  using enum TensorId;
  if (name == "window") return {Cache::window, "swa_pages", window_page_bytes, std::nullopt};
  if (name == "entries") return {Cache::entries, "compressed_pages", compress_page_bytes, compress_slot};
  return {Cache::index_entries, "indexer_pages", indexer_page_bytes, indexer_slot};
}

int page_rows(const RunConfig& config, const RowQuery& query) {
  const bool csa = config.layers.at(static_cast<std::size_t>(query.layer)) == LayerKind::csa;
  if (query.cache == "window") return config.cache.swa_page;
  if (query.cache == "index_entries") return config.cache.index_page;
  return csa ? config.cache.c4_page : config.cache.c128_page;
}

/// The row's bytes, values then scales; empty when the dump does not hold it.
std::vector<std::byte> row_bytes(const io::DumpReader& reader, std::int64_t step, const RowQuery& query,
                                 std::int64_t slot) {
  const RunConfig& config = reader.info().config;
  const CacheTensors tensors = cache_tensors(query.cache);
  const int rows = page_rows(config, query);
  const StepObservation observation = reader.read_step(step);
  const LayerObservation& layer = observation.layers.at(static_cast<std::size_t>(query.layer));
  if (const auto pages = layer.state_tensors.find(tensors.snapshot); pages != layer.state_tensors.end()) {
    const std::int64_t page = slot / rows;
    if (page >= pages->second.dim(0)) return {};
    const auto pitch = static_cast<std::size_t>(pages->second.row_elements());
    const auto bytes = pages->second.bytes().subspan(static_cast<std::size_t>(page) * pitch, pitch);
    const bool fp4 = config.profile.get<IndexCache>() == IndexCache::fp4;
    const int offset = static_cast<int>(slot % rows);
    if (const auto plain = io::plain_rows(config.profile, tensors.cache))
      return io::plain_page_row(bytes, rows, offset, *plain);
    return tensors.cache == Cache::index_entries ? io::index_page_row(bytes, rows, offset, fp4)
                                                 : io::kv_page_row(bytes, rows, offset);
  }
  const auto written = layer.tensors.find(tensors.bytes);
  if (written == layer.tensors.end()) return {};
  const Tensor* slots = &observation.batch.slot;
  if (tensors.slot) {
    const auto found = layer.tensors.find(*tensors.slot);
    if (found == layer.tensors.end()) return {};
    slots = &found->second;
  }
  const auto numbers = slots->as<std::int32_t>();
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    if (numbers[row] != slot) continue;
    const auto size = static_cast<std::size_t>(written->second.row_elements());
    const auto bytes = written->second.bytes().subspan(row * size, size);
    return {bytes.begin(), bytes.end()};
  }
  return {};
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

/// "0 1 2 3" of values, a line for every `width`.
template <class Values>
void print_values(const Values& values, std::size_t width) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % width == 0) fmt::print("{}{:>5}:", i == 0 ? "" : "\n", i);
    const auto value = static_cast<double>(values[i]);
    fmt::print(" {:.6g}", std::isnan(value) ? std::fabs(value) : value);  // a NaN has no sign to show
  }
  fmt::print("\n");
}

template <class Values>
nlohmann::ordered_json json_values(const Values& values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto value : values) {
    if (std::isfinite(value))
      list.push_back(value);
    else
      list.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
  return list;
}

void print_plain(const std::vector<std::byte>& bytes, const io::PlainRows& form, const std::string& title,
                 const RowQuery& query, std::int64_t slot, bool json) {
  const std::vector<float> values = io::decode_plain_row(bytes, form);
  const char* const dtype = form.f16 ? "float16" : "bfloat16";
  if (json) {
    print_json_line({{"type", "row"},
                     {"cache", query.cache},
                     {"layer", query.layer},
                     {"slot", slot},
                     {"bytes", hex(bytes)},
                     {"dtype", dtype},
                     {"scales", nlohmann::ordered_json::array()},
                     {"values", json_values(values)}});
    return;
  }
  fmt::print("{}, {}\n", title, dtype);
  print_values(values, 16);
}

void print_one(const std::vector<std::byte>& bytes, const std::optional<io::PlainRows>& plain,
               const RowQuery& query, std::int64_t slot, int rows, bool json) {
  const std::string title = fmt::format("layer {} {} slot {} (page {}, offset {})", query.layer, query.cache,
                                        slot, slot / rows, slot % rows);
  if (plain) return print_plain(bytes, *plain, title, query, slot, json);
  if (query.cache == "index_entries") {
    const io::IndexRow row = io::decode_index_row(bytes);
    if (json) {
      print_json_line({{"type", "row"},
                       {"cache", query.cache},
                       {"layer", query.layer},
                       {"slot", slot},
                       {"bytes", hex(bytes)},
                       {"scales", json_values(row.scales)},
                       {"values", json_values(row.values)}});
      return;
    }
    fmt::print("{}, {}\nscales", title, row.fp4 ? "e2m1" : "e4m3");
    for (std::size_t i = 0; i < row.scales.size(); ++i)
      fmt::print(" {:.6g} (0x{:x})", row.scales[i], row.scale_bits[i]);
    fmt::print("\n");
    print_values(row.values, 16);
    return;
  }
  const io::KvRow row = io::decode_kv_row(bytes);
  if (json) {
    print_json_line({{"type", "row"},
                     {"cache", query.cache},
                     {"layer", query.layer},
                     {"slot", slot},
                     {"bytes", hex(bytes)},
                     {"scales", row.scales},
                     {"spare", row.spare},
                     {"values", json_values(row.values)}});
    return;
  }
  fmt::print("{}\nscale bytes", title);
  for (const std::uint8_t scale : row.scales) fmt::print(" {} (2^{})", scale, static_cast<int>(scale) - 127);
  fmt::print(", spare {}\n", row.spare);
  print_values(row.values, 16);
}

}  // namespace

void print_row(const io::DumpReader& reader, std::int64_t step, const RowQuery& query, bool json) {
  const RunConfig& config = reader.info().config;
  if (!reader.has_step(step)) throw UsageError(fmt::format("{}: holds no step {}", reader.path(), step));
  if (query.layer < 0 || query.layer >= static_cast<int>(config.layers.size())) {
    throw UsageError(
        fmt::format("--layer {}: the dump has layers 0 to {}", query.layer, config.layers.size() - 1));
  }
  const Cache cache = cache_tensors(query.cache).cache;
  if (!has_cache(config.layers[static_cast<std::size_t>(query.layer)], cache)) {
    throw UsageError(fmt::format("layer {} ({}) has no cache {}", query.layer,
                                 name(config.layers[static_cast<std::size_t>(query.layer)]), query.cache));
  }
  if (query.slot.has_value() == query.page.has_value())
    throw UsageError("inspect --cache needs --slot or --page");
  const int rows = page_rows(config, query);
  const std::int64_t first = query.slot ? *query.slot : *query.page * rows;
  const std::int64_t count = query.slot ? 1 : rows;
  bool any = false;
  for (std::int64_t slot = first; slot < first + count; ++slot) {
    const std::vector<std::byte> bytes = row_bytes(reader, step, query, slot);
    if (bytes.empty()) continue;
    any = true;
    print_one(bytes, io::plain_rows(config.profile, cache), query, slot, rows, json);
  }
  if (!any) {
    throw UsageError(fmt::format(
        "{}: step {} neither wrote {} {} nor holds a snapshot of the cache (--tensors state)", reader.path(),
        step, query.slot ? "slot" : "page", query.slot ? *query.slot : *query.page));
  }
}

}  // namespace dsv4::cli
