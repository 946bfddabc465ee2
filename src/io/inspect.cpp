#include "io/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/dump_checks.hpp"
#include "io/dump_format.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// Where the rows written to a page cache are published.
struct WriteTensors {
  TensorId rows;
  std::optional<TensorId> slots;  ///< empty: /batch/slot
};

WriteTensors write_tensors(Cache cache) {
  switch (cache) {
    case Cache::window:
      return {TensorId::window_page_bytes, std::nullopt};
    case Cache::entries:
      return {TensorId::compress_page_bytes, TensorId::compress_slot};
    default:
      return {TensorId::indexer_page_bytes, TensorId::indexer_slot};
  }
}

struct StateTensors {
  TensorId slots;
  std::vector<std::pair<std::string, TensorId>> values;
};

StateTensors state_tensors(Cache cache) {
  if (cache == Cache::state) {
    return {TensorId::compress_state_slot,
            {{"max", TensorId::compress_state_max},
             {"sum", TensorId::compress_state_sum},
             {"kv", TensorId::compress_state_kv},
             {"score", TensorId::compress_state_score}}};
  }
  return {TensorId::indexer_state_slot,
          {{"kv", TensorId::indexer_state_kv}, {"score", TensorId::indexer_state_score}}};
}

bool is_state(Cache cache) {
  return cache == Cache::state || cache == Cache::index_state;
}

std::string_view snapshot_name(Cache cache) {
  switch (cache) {
    case Cache::window:
      return "swa_pages";
    case Cache::entries:
      return "compressed_pages";
    default:
      return "indexer_pages";
  }
}

std::string state_group(std::int64_t step, int layer, Cache cache) {
  return fmt::format("/state/{}/{}/{}", step_name(step), layer_name(layer), name(cache));
}

LayerKind checked_kind(const DumpReader& dump, int layer, Cache cache, std::int64_t address) {
  const auto& layers = dump.info().config.layers;
  if (layer < 0 || static_cast<std::size_t>(layer) >= layers.size()) {
    throw UsageError(fmt::format("{}: layer {} of {} layers", dump.path(), layer, layers.size()));
  }
  const LayerKind kind = layers[static_cast<std::size_t>(layer)];
  if (!has_cache(kind, cache)) {
    throw UsageError(
        fmt::format("{}: layer {} ({}) has no cache '{}'", dump.path(), layer, name(kind), name(cache)));
  }
  if (address < 0) throw UsageError(fmt::format("{}: address {} is negative", dump.path(), address));
  return kind;
}

/// A dataset of the dump if it is there.
std::optional<Tensor> find(const DumpReader& dump, const std::string& path) {
  if (!dump.has_object(path)) return std::nullopt;
  return dump.read_path(path);
}

/// A snapshot if it is there, of this dtype.
std::optional<Tensor> find_snapshot(const DumpReader& dump, const std::string& path, DType dtype) {
  std::optional<Tensor> snapshot = find(dump, path);
  if (!snapshot) return snapshot;
  check_snapshot(*snapshot, dump.path(), path);
  if (snapshot->dtype() != dtype)
    throw FileError(
        fmt::format("{}: {} is {}, not {}", dump.path(), path, name(snapshot->dtype()), name(dtype)));
  return snapshot;
}

/// A row of a tensor that lies beside the slots it was found by.
void require_row(const DumpReader& dump, const Tensor& tensor, std::int64_t row, TensorId id) {
  if (row < tensor.dim(0)) return;
  throw FileError(
      fmt::format("{}: {} has {} rows, its slots have more", dump.path(), path(id), tensor.dim(0)));
}

/// The last row of `slots` that equals `slot`; -1 if none.
std::int64_t last_row_of(const Tensor& slots, std::int64_t slot) {
  if (slots.dtype() != DType::int32) return -1;
  const auto values = slots.as<std::int32_t>();
  for (std::size_t row = values.size(); row-- > 0;) {
    if (values[row] == slot) return static_cast<std::int64_t>(row);
  }
  return -1;
}

std::vector<float> floats(const Tensor& tensor, std::int64_t row) {
  const auto width = static_cast<std::size_t>(tensor.row_elements());
  const auto values = tensor.as<float>().subspan(static_cast<std::size_t>(row) * width, width);
  return {values.begin(), values.end()};
}

void decode_row(SlotContent& content, const Profile& profile, Cache cache) {
  if (const auto form = plain_rows(profile, cache)) {
    content.plain = decode_plain_row(content.row, *form);
  } else if (cache == Cache::index_entries) {
    content.index = decode_index_row(content.row);
  } else {
    content.kv = decode_kv_row(content.row);
  }
}

/// From the snapshot of the step, if the dump has one.
std::optional<SlotContent> from_snapshot(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                                         std::int64_t slot) {
  SlotContent content;
  const std::string group = state_group(step, layer, cache);
  if (is_state(cache)) {
    const std::string prefix = cache == Cache::state ? "compress_state_" : "indexer_state_";
    for (const auto& [short_name, id] : state_tensors(cache).values) {
      const auto rows = find_snapshot(dump, group + "/" + prefix + short_name, DType::float32);
      if (rows && slot < rows->dim(0)) content.state.emplace_back(short_name, floats(*rows, slot));
    }
    if (content.state.empty()) return std::nullopt;
    content.source = fmt::format("{} row {}", group, slot);
    return content;
  }
  const auto pages = find_snapshot(dump, fmt::format("{}/{}", group, snapshot_name(cache)), DType::uint8);
  const int rows = page_rows(dump.info().config, layer, cache);
  if (!pages || slot / rows >= pages->dim(0)) return std::nullopt;
  const auto pitch = static_cast<std::size_t>(pages->row_elements());
  const auto page = pages->bytes().subspan(static_cast<std::size_t>(slot / rows) * pitch, pitch);
  const auto offset = static_cast<int>(slot % rows);
  const Profile& profile = dump.info().config.profile;
  const auto plain = plain_rows(profile, cache);
  const bool fp4 = profile.get<IndexCache>() == IndexCache::fp4;
  content.row = plain                           ? plain_page_row(page, rows, offset, *plain)
                : cache == Cache::index_entries ? index_page_row(page, rows, offset, fp4)
                                                : kv_page_row(page, rows, offset);
  content.source = fmt::format("{}/{} page {} row {}", group, snapshot_name(cache), slot / rows, offset);
  decode_row(content, dump.info().config.profile, cache);
  return content;
}

/// From the last write up to the step that the dump holds.
std::optional<SlotContent> from_writes(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                                       std::int64_t slot) {
  const auto& steps = dump.steps();
  for (auto at = std::ranges::upper_bound(steps, step); at != steps.begin();) {
    --at;
    SlotContent content;
    content.written_step = *at;
    if (is_state(cache)) {
      const StateTensors tensors = state_tensors(cache);
      const auto slots = dump.read_tensor(*at, layer, tensors.slots);
      const std::int64_t row = slots ? last_row_of(*slots, slot) : -1;
      if (row < 0) continue;
      for (const auto& [short_name, id] : tensors.values) {
        if (const auto values = dump.read_tensor(*at, layer, id)) {
          require_row(dump, *values, row, id);
          content.state.emplace_back(short_name, floats(*values, row));
        }
      }
      content.source = fmt::format("step {} {} row {}", *at, path(tensors.slots), row);
      return content;
    }
    const WriteTensors tensors = write_tensors(cache);
    const auto slots = tensors.slots ? dump.read_tensor(*at, layer, *tensors.slots)
                                     : find(dump, fmt::format("/steps/{}/batch/slot", step_name(*at)));
    const std::int64_t row = slots ? last_row_of(*slots, slot) : -1;
    if (row < 0) continue;
    const auto rows = dump.read_tensor(*at, layer, tensors.rows);
    if (!rows) continue;
    require_row(dump, *rows, row, tensors.rows);
    const auto width = static_cast<std::size_t>(rows->row_elements());
    const auto bytes = rows->bytes().subspan(static_cast<std::size_t>(row) * width, width);
    content.row.assign(bytes.begin(), bytes.end());
    content.source = fmt::format("step {} {} row {}", *at, path(tensors.rows), row);
    decode_row(content, dump.info().config.profile, cache);
    return content;
  }
  return std::nullopt;
}

}  // namespace

int page_rows(const RunConfig& config, int layer, Cache cache) {
  const LayerKind kind = config.layers.at(static_cast<std::size_t>(layer));
  switch (cache) {
    case Cache::window:
      return config.cache.swa_page;
    case Cache::entries:
      return kind == LayerKind::csa ? config.cache.c4_page : config.cache.c128_page;
    case Cache::index_entries:
      return config.cache.index_page;
    default:
      throw UsageError("compressor state is addressed by slot, not by page");
  }
}

SlotContent inspect_slot(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                         std::int64_t slot) {
  checked_kind(dump, layer, cache, slot);
  if (auto content = from_snapshot(dump, step, layer, cache, slot)) return *content;
  if (auto content = from_writes(dump, step, layer, cache, slot)) return *content;
  throw FileError(fmt::format("{}: neither a snapshot nor a write of slot {} of layer {} '{}' up to step {}",
                              dump.path(), slot, layer, name(cache), step));
}

std::vector<std::byte> inspect_page(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                                    std::int64_t page) {
  checked_kind(dump, layer, cache, page);
  page_rows(dump.info().config, layer, cache);
  const std::string object = fmt::format("{}/{}", state_group(step, layer, cache), snapshot_name(cache));
  const auto pages = find_snapshot(dump, object, DType::uint8);
  if (!pages) throw FileError(fmt::format("{}: there is no snapshot {}", dump.path(), object));
  if (page >= pages->dim(0)) {
    throw UsageError(
        fmt::format("{}: {} has {} pages, not page {}", dump.path(), object, pages->dim(0), page));
  }
  const auto pitch = static_cast<std::size_t>(pages->row_elements());
  const auto bytes = pages->bytes().subspan(static_cast<std::size_t>(page) * pitch, pitch);
  return {bytes.begin(), bytes.end()};
}

}  // namespace dsv4::io
