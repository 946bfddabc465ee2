#include "compare/state_comparer.hpp"

#include <fmt/format.h>

#include <array>
#include <tuple>

#include "compare/judge.hpp"
#include "compare/packed_row.hpp"
#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

constexpr Cache kCaches[]{Cache::window, Cache::entries, Cache::index_entries, Cache::state,
                          Cache::index_state};

Comparison started(const LayerComparer::Context& context, int layer, std::string_view tensor) {
  Comparison result;
  result.step = context.reference.step;
  result.layer = layer;
  result.stage = "state";
  result.tensor = tensor;
  result.rule = to_string(context.rules.rule("state/" + std::string(tensor)));
  return result;
}

void finish(const LayerComparer::Context& context, Comparison& result) {
  const bool only_equal = context.rules.only_equal_passes("state/" + result.tensor);
  result.failed = only_equal ? result.verdict != Verdict::equal : result.verdict == Verdict::diverged;
  result.downstream = result.failed && result.inputs == Inputs::different;
}

Skip skipped(const LayerComparer::Context& context, int layer, std::string_view tensor, Skip::Kind kind,
             std::string reason) {
  return {kind, context.reference.step, layer, "state", std::string(tensor), std::move(reason)};
}

// Where bytes may differ within their rules, a digest says nothing: its status is that of the rows written.
void compare_digest(const LayerComparer::Context& context, int layer, Cache cache, Inputs inherited,
                    CacheStatus& caches, StepComparison& out) {
  const auto& reference = context.reference.layers[static_cast<std::size_t>(layer)].state_digests;
  const auto& subject = context.subject.layers[static_cast<std::size_t>(layer)].state_digests;
  const auto a = reference.find(cache);
  const auto b = subject.find(cache);
  caches[{layer, cache}] = inherited;
  if (a == reference.end() && b == subject.end()) return;
  if (a == reference.end() || b == subject.end()) {
    const bool absent_reference = a == reference.end();
    if (context.options.due && context.options.due(absent_reference, context.reference.step, std::nullopt)) {
      out.findings.push_back(missing(absent_reference, context.reference.step, layer,
                                     "the digest of state '" + std::string(name(cache)) + "'"));
      return;
    }
    out.skips.push_back(
        skipped(context, layer, name(cache), Skip::Kind::not_produced,
                a == reference.end() ? "no digest by the reference" : "no digest by the subject"));
    return;
  }
  Comparison result = started(context, layer, name(cache));
  result.elements = 1;
  result.inputs = inherited;
  result.reference_digest = a->second;
  result.subject_digest = b->second;
  if (a->second == b->second) {
    result.verdict = Verdict::equal;
    caches[{layer, cache}] = Inputs::identical;
  } else {
    result.mismatches = 1;
    result.note = "digests of the live rows differ";
    const bool explained = inherited == Inputs::within_rule;
    result.verdict = explained ? Verdict::within_rule : Verdict::diverged;
    result.outside = explained ? 0 : 1;
    if (explained) result.note += "; the rows written differ within their rules";
    caches[{layer, cache}] = explained ? Inputs::within_rule : Inputs::different;
  }
  finish(context, result);
  out.comparisons.push_back(std::move(result));
}

Inputs compare_snapshot(const LayerComparer::Context& context, int layer, const std::string& tensor,
                        const Tensor& a, const Tensor& b, Inputs inherited, StepComparison& out) {
  Comparison result = started(context, layer, tensor);
  result.inputs = inherited;
  const std::optional<PackedRow> pages =
      a.shape().size() == 2 ? snapshot_layout(context.reference_info.config, layer, tensor, a.dim(1))
                            : std::nullopt;
  DontCare ignored;
  if (pages) {
    const auto left_out = [page = *pages](std::int64_t byte) {
      const PackedPart part = page.locate(byte).part;
      return part == PackedPart::spare || part == PackedPart::behind;
    };
    for (std::int64_t byte = 0; byte < a.dim(1); ++byte) ignored.also_in_row += left_out(byte);
    ignored.also = left_out;
    ignored.reason = "spare scale bytes and bytes behind the last entry of a page";
  }
  const Limits limits{context.rules.rule("state/" + tensor), 0};
  const auto judge = [&]() -> std::unique_ptr<ElementJudge> {
    if (pages) return bytes_judge(a, b, *pages, limits);
    if (a.dtype() != DType::uint8) return plain_judge(a, b, limits);
    const Profile& profile = context.reference_info.config.profile;
    const bool f16 = tensor == "indexer_pages" ? profile.get<IndexCache>() == IndexCache::f16
                                               : profile.get<KvCache>() == KvCache::f16;
    return half_rows_judge(a, b, f16, limits);
  };
  const std::vector<std::string> axes = pages ? axis_names("page,byte") : axis_names("row,channel");
  scan_pair(a, b, ignored, {context.rules.only_equal_passes("state/" + tensor), inherited, axes}, judge,
            result);
  if (!result.first.empty()) {
    if (pages) {
      const PackedByte where = pages->locate(result.first[1]);
      result.meaning.page = result.first[0];
      if (where.row >= 0) result.meaning.offset = where.row;
      result.meaning.part = name(where.part);
    } else {
      result.meaning.slot = result.first[0];
      if (result.first.size() > 1) result.meaning.dim = result.first[1];
    }
  }
  finish(context, result);
  const Inputs status = result.failed                      ? Inputs::different
                        : result.verdict == Verdict::equal ? Inputs::identical
                                                           : Inputs::within_rule;
  out.comparisons.push_back(std::move(result));
  return status;
}

using WriteKey = std::tuple<Cache, std::int64_t, std::int32_t, std::int32_t>;
using WriteMap = std::map<WriteKey, const Write*>;

WriteMap last_writes(const std::vector<Write>& writes) {
  WriteMap result;
  for (const Write& write : writes) result[{write.cache, write.slot, write.request, write.index}] = &write;
  return result;
}

std::string describe(const RunConfig& config, const WriteKey& key) {
  const auto& [cache, slot, request, index] = key;
  const std::string owner = request >= 0 && static_cast<std::size_t>(request) < config.requests.size()
                                ? config.requests[static_cast<std::size_t>(request)]
                                : "nobody";
  return fmt::format("{} slot {} of request {}, {} {}", name(cache), slot, owner,
                     cache == Cache::entries || cache == Cache::index_entries ? "entry" : "position", index);
}

// A row of the batch, so its window row was computed: a restore step may write it again or keep it. That it
// holds what it held is for the digest of the window to say.
bool window_row_of_batch(const BatchTables& batch, const WriteKey& key) {
  if (std::get<Cache>(key) != Cache::window || batch.request.shape().empty()) return false;
  const auto request = batch.request.as<std::int32_t>();
  const auto position = batch.position.as<std::int32_t>();
  for (std::size_t row = 0; row < request.size() && row < position.size(); ++row) {
    if (request[row] == std::get<2>(key) && position[row] == std::get<3>(key)) return true;
  }
  return false;
}

void compare_writes(const LayerComparer::Context& context, int layer, StepComparison& out) {
  const auto& a = context.reference.layers[static_cast<std::size_t>(layer)].writes;
  const auto& b = context.subject.layers[static_cast<std::size_t>(layer)].writes;
  if (a.empty() && b.empty()) return;
  if (a.empty() || b.empty()) {
    out.skips.push_back(
        skipped(context, layer, "writes", Skip::Kind::not_produced,
                a.empty() ? "no list of writes by the reference" : "no list of writes by the subject"));
    return;
  }
  const WriteMap reference = last_writes(a);
  const WriteMap subject = last_writes(b);
  Comparison result = started(context, layer, "writes");
  result.rule = "same rows";
  result.inputs = Inputs::identical;
  const auto miss = [&](const WriteKey& key, std::string_view what) {
    ++result.mismatches;
    if (result.note.empty())
      result.note = fmt::format("{}: {}", what, describe(context.reference_info.config, key));
  };
  for (const auto& [key, write] : reference) {
    ++result.elements;
    if (!subject.contains(key)) miss(key, "written by the reference only");
  }
  std::int64_t again = 0;
  for (const auto& [key, write] : subject) {
    if (reference.contains(key)) continue;
    ++result.elements;
    if (window_row_of_batch(context.subject.batch, key)) ++again;
    miss(key, "written by the subject only");
  }
  result.outside = result.mismatches - again;
  if (result.outside > 0) {
    result.verdict = Verdict::diverged;
  } else if (again > 0) {
    result.verdict = Verdict::value_equal;
    result.note = fmt::format("{} window rows that could be kept were computed again", again);
  }
  finish(context, result);
  out.comparisons.push_back(std::move(result));
}

}  // namespace

std::optional<PackedRow> snapshot_layout(const RunConfig& config, int layer, std::string_view tensor,
                                         std::int64_t row_bytes) {
  const CacheConfig& cache = config.cache;
  const bool index = tensor == "indexer_pages";
  if (index ? layout::plain(config.profile.get<IndexCache>()) : layout::plain(config.profile.get<KvCache>())) {
    return std::nullopt;
  }
  if (tensor == "swa_pages") return PackedRow::of_row_bytes(layout::kKvRowBytes)->with_rows(cache.swa_page);
  if (tensor == "compressed_pages") {
    const bool csa = config.layers[static_cast<std::size_t>(layer)] == LayerKind::csa;
    return PackedRow::of_row_bytes(layout::kKvRowBytes)->with_rows(csa ? cache.c4_page : cache.c128_page);
  }
  if (tensor == "indexer_pages") {
    const bool fp4 = config.profile.get<IndexCache>() == IndexCache::fp4;
    const int bytes = fp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes;
    if (row_bytes < std::int64_t{bytes} * cache.index_page) return std::nullopt;
    return PackedRow::of_row_bytes(bytes)->with_rows(cache.index_page);
  }
  return std::nullopt;
}

void compare_state(const LayerComparer::Context& context, int layer, const LayerComparer& rows,
                   CacheStatus& caches, StepComparison& out) {
  const LayerKind kind = context.reference_info.config.layers[static_cast<std::size_t>(layer)];
  compare_writes(context, layer, out);
  std::array<Inputs, kCacheCount> inherited{};
  for (const Cache cache : kCaches) {
    const auto before = context.caches.find({layer, cache});
    const Inputs earlier = before == context.caches.end() ? Inputs::identical : before->second;
    inherited[static_cast<std::size_t>(cache)] = worse(earlier, rows.rows_written_status(cache));
  }
  const auto& reference = context.reference.layers[static_cast<std::size_t>(layer)].state_tensors;
  const auto& subject = context.subject.layers[static_cast<std::size_t>(layer)].state_tensors;
  const auto cache_of = [](std::string_view tensor) {
    if (tensor == "swa_pages") return Cache::window;
    if (tensor == "compressed_pages") return Cache::entries;
    if (tensor == "indexer_pages") return Cache::index_entries;
    return tensor.starts_with("indexer") ? Cache::index_state : Cache::state;
  };
  for (const auto& [tensor, value] : reference) {
    const auto other = subject.find(tensor);
    if (other == subject.end()) {
      out.skips.push_back(
          skipped(context, layer, tensor, Skip::Kind::not_produced, "no snapshot by the subject"));
      continue;
    }
    Inputs& status = inherited[static_cast<std::size_t>(cache_of(tensor))];
    status = worse(status, compare_snapshot(context, layer, tensor, value, other->second, status, out));
  }
  for (const auto& [tensor, value] : subject) {
    if (reference.contains(tensor)) continue;
    out.skips.push_back(
        skipped(context, layer, tensor, Skip::Kind::not_produced, "no snapshot by the reference"));
  }
  for (const Cache cache : kCaches) {
    if (has_cache(kind, cache)) {
      compare_digest(context, layer, cache, inherited[static_cast<std::size_t>(cache)], caches, out);
    }
  }
}

}  // namespace dsv4::compare
