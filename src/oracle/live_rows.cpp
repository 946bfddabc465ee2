#include "oracle/live_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

/// First live index of a request, its end.
struct Range {
  std::int32_t begin;
  std::int32_t end;
};

Range live_range(LayerKind kind, Cache cache, const CacheShape& shape, std::int32_t length) {
  switch (cache) {
    case Cache::window:
      return {first_live_window(length), length};
    case Cache::entries:
    case Cache::index_entries:
      return {0, live_entries(kind, length)};
    case Cache::state:
    case Cache::index_state:
      if (shape.online) return {length % ratio(kind) == 0 ? length : length - 1, length};
      return {first_live_state(kind, length), length};
  }
  throw InternalError("unknown cache");
}

std::optional<Cache> cache_named(std::string_view text) {
  for (std::size_t c = 0; c < kCacheCount; ++c) {
    if (name(static_cast<Cache>(c)) == text) return static_cast<Cache>(c);
  }
  return std::nullopt;
}

std::string_view part_of(const CacheShape& shape, std::int64_t byte) {
  if (shape.channels == 0) return byte < shape.row_bytes() - shape.scale_bytes ? "values" : "scales";
  const std::int64_t part = byte / (4 * std::int64_t{shape.channels});
  if (shape.online) return part == 0 ? "max" : part == 1 ? "sum" : "kv";
  return part == 0 ? "kv" : "score";
}

void locate(const Engine& reference, const Engine& subject, const StepPlan& plan, Cache cache,
            compare::Comparison& result) {
  const RunConfig& config = reference.config();
  const LayerKind kind = config.layers.at(static_cast<std::size_t>(result.layer));
  const CacheShape shape = cache_shape(config, result.layer, cache);
  const std::vector<LiveRow> rows = live_row_list(config, result.layer, cache, plan.live);
  const std::vector<std::byte> a = reference.live_rows(result.layer, cache, plan.live);
  const std::vector<std::byte> b = subject.live_rows(result.layer, cache, plan.live);
  const auto size = static_cast<std::size_t>(shape.row_bytes());
  if (a.size() != b.size() || a.size() != rows.size() * size) return;
  std::int64_t differing = 0;
  const LiveRow* first = nullptr;
  std::int64_t first_byte = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto begin = a.begin() + static_cast<std::ptrdiff_t>(row * size);
    const auto other = b.begin() + static_cast<std::ptrdiff_t>(row * size);
    const auto [at, _] = std::mismatch(begin, begin + static_cast<std::ptrdiff_t>(size), other);
    if (at == begin + static_cast<std::ptrdiff_t>(size)) continue;
    if (differing++ == 0) {
      first = &rows[row];
      first_byte = at - begin;
    }
  }
  if (first == nullptr) return;
  const bool entry = cache == Cache::entries || cache == Cache::index_entries;
  compare::Meaning& meaning = result.meaning;
  meaning.request = config.requests.at(static_cast<std::size_t>(first->request));
  if (entry) {
    meaning.entry = first->index;
    meaning.entry_first = std::int64_t{first->index} * ratio(kind);
    meaning.entry_last = *meaning.entry_first + ratio(kind) - 1;
  } else {
    meaning.position = first->index;
    meaning.position_mod_4 = first->index % 4;
    meaning.position_mod_128 = first->index % 128;
  }
  meaning.slot = first->slot;
  if (shape.paged) {
    meaning.page = first->slot / shape.page_rows;
    meaning.offset = first->slot % shape.page_rows;
  }
  meaning.part = part_of(shape, first_byte);
  result.note = fmt::format(
      "{} of {} live rows differ, first that of request '{}', {} {}, from byte {} ({}) on", differing,
      rows.size(), meaning.request, entry ? "entry" : "position", first->index, first_byte, meaning.part);
}

}  // namespace

std::vector<LiveRow> live_row_list(const RunConfig& config, int layer, Cache cache,
                                   std::span<const LiveRequest> live) {
  const CacheShape shape = cache_shape(config, layer, cache);
  std::vector<LiveRow> rows;
  for (const LiveRequest& request : live) {
    const LayerKind kind = config.layers.at(static_cast<std::size_t>(layer));
    const Range range = live_range(kind, cache, shape, request.length);
    for (std::int32_t index = range.begin; index < range.end; ++index) {
      const std::int64_t slot = slot_of(shape, *request.tables, request.state_base, index);
      if (slot < 0 && cache == Cache::window) continue;  // its page was evicted
      rows.push_back({request.request, index, slot});
    }
  }
  return rows;
}

void locate_state_differences(const Engine& reference, const Engine& subject, const StepPlan& plan,
                              compare::StepComparison& step) {
  if (!reference.info().byte_state || !subject.info().byte_state) return;
  for (compare::Comparison& result : step.comparisons) {
    if (result.stage != "state" || result.verdict == compare::Verdict::equal) continue;
    const std::optional<Cache> cache = cache_named(result.tensor);
    if (cache && !result.reference_digest.empty()) locate(reference, subject, plan, *cache, result);
  }
}

}  // namespace dsv4::oracle
