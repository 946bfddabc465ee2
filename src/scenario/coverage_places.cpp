#include "scenario/coverage_places.hpp"

#include <algorithm>

#include "model/layout.hpp"
#include "scenario/memory.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::int64_t k2G = std::int64_t{1} << 31;
constexpr std::int64_t k4G = std::int64_t{1} << 32;
constexpr std::size_t kWideBatch = 32;

bool has_entries(Pool pool) {
  return pool == Pool::entries_c4 || pool == Pool::entries_c128 || pool == Pool::index;
}

/// Bytes from page to page; 0 of state pages, which scenarios do not place.
std::int64_t pitch_of(const RunConfig& config, Pool pool) {
  const CacheConfig& cache = config.cache;
  if (pool == Pool::index)
    return cache.pitch.value_or(layout::page_bytes(config.profile.get<IndexCache>(), cache.index_page));
  if (pool != Pool::window && !has_entries(pool)) return 0;
  return cache.pitch.value_or(layout::page_bytes(config.profile.get<KvCache>(), page_rows(cache, pool)));
}

}  // namespace

PlaceObserver::PlaceObserver(const RunConfig& config) : config_(config) {
  csa_ = std::ranges::count(config.layers, LayerKind::csa) > 0;
  hca_ = std::ranges::count(config.layers, LayerKind::hca) > 0;
  forms();
}

void PlaceObserver::forms() {
  const CacheConfig& cache = config_.cache;
  note("allocate.sequential", cache.allocate == Allocate::sequential);
  note("allocate.shuffled", cache.allocate == Allocate::shuffled);
  note("allocate.lifo", cache.allocate == Allocate::lifo);
  note("release.eager", cache.swa_release == SwaRelease::eager);
  note("release.never", cache.swa_release == SwaRelease::never);
  note("cache.pool_fixed", cache.pool_pages.has_value());
  note("cache.pitch", cache.pitch.has_value());
  for (const int rows :
       {cache.swa_page, csa_ ? cache.c4_page : 0, csa_ ? cache.index_page : 0, hca_ ? cache.c128_page : 0}) {
    note("cache.page_of_one", rows == 1);
    note("cache.page_of_256", rows == 256);
  }
  const bool plain_kv = layout::plain(config_.profile.get<KvCache>());
  note("cache.kv_plain", plain_kv);
  note("cache.kv_fp8", !plain_kv);
  const auto index = config_.profile.get<IndexCache>();
  note("cache.index_plain", csa_ && layout::plain(index));
  note("cache.index_fp4", csa_ && index == IndexCache::fp4);
  note("cache.index_fp8", csa_ && index == IndexCache::fp8);
  note("state.ring_c4", csa_ && cache.c4_state == C4State::ring);
  note("state.ring_c128", hca_ && cache.c128_state == C128State::ring);
  note("seeded.edited", !config_.seed_edits.empty());
}

void PlaceObserver::step(const StepPlan& step) {
  const auto event = nlohmann::ordered_json::parse(step.event);
  const std::string& kind = event.begin().key();
  lengths(event);
  hit(step);
  for (const PageRef& page : step.allocated)
    note("poison.reused", poisoned_.contains({page.pool, page.page}));
  const bool computes = step.kind == StepKind::compute || step.kind == StepKind::graph;
  if (computes) batch(step);
  for (const RequestStep& share : step.requests) {
    addresses(*share.tables);
    if (computes) rows(share);
    if (share.verify) verify(share);
  }
  if (step.kind == StepKind::graph) graph(step, kind == "replay_graph");
  poison(step, event);
  note("batch.drained", ran_ && live_.empty() && !step.live.empty());
  ran_ |= !step.live.empty();
  live_ = step.live;
  for (const LiveRequest& live : live_) last_length_[live.request] = live.length;
}

void PlaceObserver::rows(const RequestStep& share) {
  const std::int32_t first = share.begin;
  if (share.row_count == 1 && !share.verify) {
    note("decode.mod4_" + std::to_string(first % 4), true);
    const std::int32_t residue = first % 128;
    if (residue <= 1 || residue >= 126) note("decode.mod128_" + std::to_string(residue), true);
  }
  const CacheConfig& cache = config_.cache;
  edges("window", first, share.end, cache.swa_page);
  if (csa_) {
    edges("c4", first / 4, share.end / 4, cache.c4_page);
    edges("index", first / 4, share.end / 4, cache.index_page);
    note("select.empty_lanes", (first + 1) / 4 < config_.geometry.index_topk);
  }
  if (hca_) edges("c128", first / 128, share.end / 128, cache.c128_page);
  note("position.beyond_original", (csa_ || hca_) && share.end > config_.geometry.yarn_original);
  note("poison.page_tail", share.end % cache.swa_page != 0);
}

/// Rows [first, end) of a cache are written.
void PlaceObserver::edges(std::string_view pool, std::int32_t first, std::int32_t end, int page_size) {
  if (first >= end) return;
  note("page." + std::string(pool) + "_first", first % page_size == 0);
  note("page." + std::string(pool) + "_last", end % page_size == 0);
}

void PlaceObserver::addresses(const BlockTables& tables) {
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    const std::int64_t pitch = pitch_of(config_, static_cast<Pool>(i));
    bool below_2g = false;
    bool below_4g = false;
    bool from_2g = false;
    bool from_4g = false;
    for (const std::int32_t page : tables[i]) {
      if (page < 0) continue;
      const std::int64_t byte = page * pitch;
      (byte < k2G ? below_2g : from_2g) = true;
      (byte < k4G ? below_4g : from_4g) = true;
    }
    note("address.beyond_2g", from_2g);
    note("address.beyond_4g", from_4g);
    note("address.straddles_2g", below_2g && from_2g);
    note("address.straddles_4g", below_4g && from_4g);
  }
}

void PlaceObserver::batch(const StepPlan& step) {
  note("batch.wide", step.requests.size() >= kWideBatch);
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    for (std::size_t j = i + 1; j < step.requests.size(); ++j) {
      const std::int32_t before = step.requests[i].request;
      const std::int32_t behind = step.requests[j].request;
      in_order_.insert({before, behind});
      note("batch.reordered", in_order_.contains({behind, before}));
    }
  }
}

void PlaceObserver::graph(const StepPlan& step, bool replay) {
  note("graph.captured", !replay);
  if (!replay) return;
  const auto padding = static_cast<std::size_t>(std::ranges::count(step.rows, -1, &Row::request));
  note("graph.padded", padding > 0 && padding < step.rows.size());
  note("graph.only_padding", padding == step.rows.size());
  bool entry = step.requests.empty();
  for (const RequestStep& share : step.requests) {
    note("graph.verify", share.verify);
    note("graph.prefill", !share.verify && share.row_count > 1);
    entry |= share.end >= 4;
  }
  note("graph.no_entry", !entry && csa_ && hca_);
}

void PlaceObserver::verify(const RequestStep& share) {
  note("verify.start_mod4_" + std::to_string(share.begin % 4), true);
  note("verify.single_row", share.row_count == 1);
  note("verify.wider_than_group", share.row_count > 4);
  note("verify.crosses_128", hca_ && share.begin / 128 < (share.end - 1) / 128);
  note("verify.rejects_across_128", hca_ && share.committed / 128 < (share.end - 1) / 128);
}

void PlaceObserver::hit(const StepPlan& step) {
  for (const PrefixHit& prefix : step.prefix) {
    const bool alive = std::ranges::find(live_, prefix.source, &LiveRequest::request) != live_.end();
    note("hit.live_donor", alive);
    note("hit.freed_donor", !alive);
    const auto length = last_length_.find(prefix.source);
    note("hit.whole_donor", length != last_length_.end() && length->second == prefix.tokens);
    const CacheConfig& cache = config_.cache;
    for (const auto& [there, ratio, page_size] :
         {std::tuple{csa_, 4, cache.c4_page}, std::tuple{csa_, 4, cache.index_page},
          std::tuple{hca_, 128, cache.c128_page}}) {
      note("hit.page_edge", there && prefix.tokens / ratio % page_size == 0);
      note("hit.inside_page", there && prefix.tokens / ratio % page_size != 0);
    }
  }
}

void PlaceObserver::poison(const StepPlan& step, const nlohmann::ordered_json& event) {
  if (!step.poison) return;
  note("poison.nan", step.poison->value == layout::kPoison);
  note("poison.large", step.poison->value != layout::kPoison);
  note("poison.unused", event.begin().value().value("what", "") == "unused");
  for (const PageRef& page : step.poison->pages) poisoned_.insert({page.pool, page.page});
}

/// Lengths at which a request is preempted, saved or cut back.
void PlaceObserver::lengths(const nlohmann::ordered_json& event) {
  const std::string& kind = event.begin().key();
  const auto& body = event.begin().value();
  note("lifecycle.evict_kept", kind == "evict" && body.value("what", "") == "kept");
  if (kind != "preempt" && kind != "save" && kind != "rewind") return;
  const std::int32_t length = length_of(body.value("request", ""));
  if (kind == "rewind") {
    const std::int32_t to = body.value("to", 0);
    note("lifecycle.rewind", true);
    note("rewind.to_zero", to == 0);
    note("rewind.reopens_4", csa_ && to % 4 != 0 && to / 4 < length / 4);
    note("rewind.reopens_128", hca_ && to % 128 != 0 && to / 128 < length / 128);
  } else if (kind == "preempt") {
    if (length % 4 != 0) note("preempt.mod4_" + std::to_string(length % 4), true);
    if (length % 128 == 0 || length % 128 == 127)
      note("preempt.mod128_" + std::to_string(length % 128), true);
  } else if (length % 128 <= 1 || length % 128 == 127) {
    note("save.mod128_" + std::to_string(length % 128), true);
  }
}

std::int32_t PlaceObserver::length_of(std::string_view name) const {
  for (const LiveRequest& live : live_) {
    if (config_.requests.at(static_cast<std::size_t>(live.request)) == name) return live.length;
  }
  return 0;
}

}  // namespace dsv4::scenario
