#include "scenario/coverage.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "scenario/coverage_places.hpp"
#include "scenario/memory.hpp"

namespace dsv4::scenario {
namespace {

/// Walks a plan and collects facts.
class Observer {
 public:
  explicit Observer(const RunConfig& config) : config_(config) {
    csa_ = std::ranges::count(config.layers, LayerKind::csa) > 0;
    hca_ = std::ranges::count(config.layers, LayerKind::hca) > 0;
    const bool swa = std::ranges::count(config.layers, LayerKind::swa) > 0;
    const CacheConfig& cache = config.cache;
    note("layers.mixed", swa && csa_ && hca_);
    note("layers.chain", config.chain && config.layers.size() > 1);
    note("state.paged_c4", csa_ && cache.c4_state == C4State::paged);
    note("state.page4align", csa_ && cache.c4_state == C4State::page4align);
    note("state.paged_c128", hca_ && cache.c128_state == C128State::paged);
    note("state.online", hca_ && cache.c128_state == C128State::online);
    ring_c4_ = csa_ && cache.c4_state == C4State::ring;
    ring_c128_ = hca_ && cache.c128_state == C128State::ring;
    note("ring.doubled", (ring_c4_ || ring_c128_) && cache.draft_rows > 1);
    const std::set<std::string> names(config.requests.begin(), config.requests.end());
    note("lifecycle.readmitted", names.size() < config.requests.size());
  }

  void step(const StepPlan& step) {
    const auto event = nlohmann::ordered_json::parse(step.event);
    kind_ = event.begin().key();
    pages(step);
    if (step.kind == StepKind::compute || step.kind == StepKind::graph) compute(step);
    lifecycle(step, event);
    if (step.kind == StepKind::restore) restore(step);
    last_event_ = kind_ + event.begin().value().dump();
  }

  std::set<std::string> take() { return std::move(facts_); }

 private:
  void note(std::string_view fact, bool holds) {
    if (holds) facts_.emplace(fact);
  }

  void pages(const StepPlan& step) {
    for (const PageRef& page : step.allocated) {
      note("page.reused", !seen_.insert({page.pool, page.page}).second);
    }
    note("page.released", !step.released.empty());
    note("poison.freed",
         config_.cache.poison_freed && !(step.released.empty() && step.released_bases.empty()));
    note("page.copied", !step.copies.empty());
    note("page.copied_on_write", !step.copies.empty() && step.prefix.empty());
    const bool goes_on = step.kind == StepKind::compute;
    for (const PageRef& page : step.released) {
      const bool state =
          page.pool == Pool::state_c4 || page.pool == Pool::state_c128 || page.pool == Pool::state_index;
      note("state.paged_released", goes_on && state);
    }
    // Most steps leave every table as it was.
    std::vector<std::shared_ptr<const BlockTables>> tables;
    for (const LiveRequest& live : step.live) tables.push_back(live.tables);
    const bool moved = tables != tables_;
    tables_ = std::move(tables);
    std::set<std::pair<Pool, std::int32_t>> held;
    for (const LiveRequest& live : step.live) {
      for (std::size_t pool = 0; moved && pool < kPoolCount; ++pool) {
        for (const std::int32_t page : (*live.tables)[pool]) {
          note("page.null_guard", page < 0);
          note("page.shared", page >= 0 && !held.insert({static_cast<Pool>(pool), page}).second);
        }
      }
      const auto [owner, first] = bases_.emplace(live.state_base, live.request);
      note("state.base_reused", !first && owner->second != live.request);
      owner->second = live.request;
    }
  }

  void compute(const StepPlan& step) {
    bool chunk = false;
    bool narrow = false;
    std::set<std::int32_t> residues;
    for (const RequestStep& share : step.requests) {
      const bool several = share.row_count > 1 && !share.verify;
      chunk |= several;
      narrow |= !several;
      rows(share, several);
      groups(share);
      released_window(step, share);
      if (share.verify) verify(share);
      if (share.row_count == 1) residues.insert(share.begin % 4);
    }
    const auto padding = static_cast<std::size_t>(std::ranges::count(step.rows, -1, &Row::request));
    note("batch.mixed", chunk && narrow);
    note("batch.several_requests", step.requests.size() > 1);
    note("batch.positions_differ", residues.size() > 1);
    note("batch.padding", padding > 0 && padding < step.rows.size());
    note("batch.only_padding", padding > 0 && padding == step.rows.size());
    note("page.null_guard", padding > 0);
    note("graph.replayed", step.kind == StepKind::graph && !step.requests.empty());
  }

  void rows(const RequestStep& share, bool several) {
    const std::int32_t first = share.begin;
    const std::int32_t last = share.end - 1;
    if (several) {
      note("chunk.mid_group", first % 4 != 0);
      if (first > 0) note("chunk.start_mod4_" + std::to_string(first % 4), true);
      note("chunk.end_mod128_0", share.end % 128 == 0);
      note("chunk.end_mod128_1", share.end % 128 == 1);
      note("chunk.end_mod128_127", share.end % 128 == 127);
      note("chunk.long", share.row_count > kWindow);
    }
    note("window.first_token", first == 0);
    note("window.partial", first < kWindow - 1);
    note("window.full", last >= kWindow - 1);
    note("page.edge_crossed", first / config_.cache.swa_page != last / config_.cache.swa_page);
    if (csa_) {
      const std::int32_t most = (last + 1) / 4;
      const std::int32_t least = (first + 1) / 4;
      note("select.empty", least == 0);
      note("select.all_visible", most > 0 && std::max(least, 1) <= config_.geometry.index_topk);
      note("select.exact", least <= config_.geometry.index_topk && config_.geometry.index_topk <= most);
      note("select.cut", most > config_.geometry.index_topk);
    }
    note("ring.wrapped_c4", ring_c4_ && last >= ring_rows_c4(config_.cache));
    note("ring.wrapped_c128", ring_c128_ && last >= ring_rows_c128(config_.cache));
  }

  void groups(const RequestStep& share) {
    for (const auto& [kind, there] : {std::pair{LayerKind::csa, csa_}, std::pair{LayerKind::hca, hca_}}) {
      const std::int32_t first = share.begin / ratio(kind);
      const std::int32_t closed = share.end / ratio(kind) - first;
      if (!there || closed == 0) continue;
      note("compress.close_in_verify", share.verify);
      note("compress.close_in_decode", !share.verify && share.row_count == 1);
      note("compress.close_in_prefill", !share.verify && share.row_count > 1);
      note("compress.two_groups_one_step", closed > 1);
      if (kind == LayerKind::csa) {
        note("compress.overlap_first_window", first == 0);
        note("compress.overlap_across_steps", first > 0);
      } else {
        note("compress.hca_closed", true);
        note("compress.hca_across_steps", share.begin % 128 != 0);
        note("online.group_closed", config_.cache.c128_state == C128State::online);
      }
    }
  }

  void verify(const RequestStep& share) {
    const std::int32_t rejected = share.end - share.committed;
    note("verify.rejected", rejected > 0);
    note("verify.all_accepted", rejected == 0);
    note("verify.none_accepted", share.committed == share.begin);
    note("verify.spans_three_groups", csa_ && (share.end - 1) / 4 - share.begin / 4 >= 2);
    for (const auto& [kind, there] : {std::pair{LayerKind::csa, csa_}, std::pair{LayerKind::hca, hca_}}) {
      const int r = ratio(kind);
      note("verify.group_closes_in_accepted", there && share.committed / r > share.begin / r);
      note("verify.group_closes_in_rejected", there && share.end / r > share.committed / r);
    }
    note("online.bank_copied",
         hca_ && config_.cache.c128_state == C128State::online && share.committed > share.begin);
  }

  /// Pages that a request held during the step and does not hold after it.
  void released_window(const StepPlan& step, const RequestStep& share) {
    const auto live = std::ranges::find(step.live, share.request, &LiveRequest::request);
    if (live == step.live.end()) return;
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      const auto& before = (*share.tables)[pool];
      const auto& after = (*live->tables)[pool];
      const int page_size = page_rows(config_.cache, static_cast<Pool>(pool));
      for (std::size_t item = 0; item < before.size(); ++item) {
        if (before[item] < 0 || (item < after.size() && after[item] >= 0)) continue;
        if (static_cast<Pool>(pool) != Pool::window) {
          note("page.cut_back", share.verify && item >= after.size());
          continue;
        }
        const std::int64_t first = static_cast<std::int64_t>(item) * page_size;
        note(first >= share.committed ? "page.cut_back" : "page.released_window", true);
      }
    }
  }

  void lifecycle(const StepPlan& step, const nlohmann::ordered_json& event) {
    const auto& body = event.begin().value();
    note("lifecycle.free", kind_ == "free");
    note("lifecycle.free_keep", kind_ == "free" && body.contains("keep"));
    note("lifecycle.preempt", kind_ == "preempt");
    note("lifecycle.save", kind_ == "save");
    note("lifecycle.evict", kind_ == "evict");
    note("fill.synthetic", step.kind == StepKind::fill);
    note("poison.event", step.poison.has_value());
    note("restore.nothing_missing", kind_ == "rewind" && step.kind == StepKind::lifecycle);
    note("page.cut_back", kind_ == "rewind" && !step.released.empty());
  }

  void restore(const StepPlan& step) {
    note("restore.prefix_hit", kind_ == "prefix_hit");
    note("restore.resumed", kind_ == "resume");
    note("restore.rewound", kind_ == "rewind");
    note("restore.loaded", kind_ == "load");
    note("restore.evicted", kind_ == "restore");
    const auto event = nlohmann::ordered_json::parse(step.event);
    note("restore.chunked",
         (kind_ == "resume" || kind_ == "load") && kind_ + event.begin().value().dump() == last_event_);
    for (const RequestStep& share : step.requests) {
      const KeepFrom& from = share.from;
      const std::int32_t n = share.committed;
      note("restore.mid_group", n % 4 != 0);
      note("restore.kept_rows", from.window > std::max(share.begin, first_live_window(n)) ||
                                    (csa_ && (from.entries_c4 > 0 || from.state_c4 > share.begin)) ||
                                    (hca_ && (from.entries_c128 > 0 || from.state_c128 > share.begin)));
    }
  }

  const RunConfig& config_;
  bool csa_ = false;
  bool hca_ = false;
  bool ring_c4_ = false;
  bool ring_c128_ = false;
  std::string kind_;
  std::string last_event_;
  std::set<std::pair<Pool, std::int32_t>> seen_;
  std::map<std::int32_t, std::int32_t> bases_;
  std::vector<std::shared_ptr<const BlockTables>> tables_;  ///< of the live requests after the last step
  std::set<std::string> facts_;
};

}  // namespace

std::set<std::string> plan_coverage(const RunPlan& run) {
  Observer observer(run.config);
  PlaceObserver places(run.config);
  for (const StepPlan& step : run.steps) {
    observer.step(step);
    places.step(step);
  }
  std::set<std::string> facts = observer.take();
  facts.merge(places.take());
  return facts;
}

}  // namespace dsv4::scenario
