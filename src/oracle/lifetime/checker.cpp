#include "oracle/lifetime/checker.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compare/write_set.hpp"
#include "model/error.hpp"

namespace dsv4::oracle {
namespace {

constexpr Cache kCaches[]{Cache::window, Cache::entries, Cache::index_entries, Cache::state,
                          Cache::index_state};

std::string row_text(Cache cache, std::int32_t index) {
  return fmt::format("{} {}", holds_entries(cache) ? "entry" : "position", index);
}

}  // namespace

LifetimeChecker::LifetimeChecker(const RunConfig& config, const PageLedger& ledger)
    : config_(config), ledger_(ledger), shadow_(config), rows_(config, ledger, contents_) {}

void LifetimeChecker::begin(const StepPlan& plan) {
  plan_ = &plan;
  found_.clear();
  findings_.clear();
  repeats_.clear();
  contents_.begin(plan);
  for (const PageCopy& copy : plan.copies) {
    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      for (const Cache cache : kCaches) {
        if (!shadow_.has(layer, cache)) continue;
        CacheShadow& shadow = shadow_.at(layer, cache);
        if (shadow.shape().paged && shadow.shape().pool == copy.pool)
          shadow.copy(copy.from, copy.to, copy.rows, static_cast<std::int32_t>(plan.index));
      }
    }
    if (ledger_.page(copy.pool, copy.from).held) continue;
    compare::Finding finding;
    finding.step = plan.index;
    finding.layer = -1;
    finding.kind = "copy_freed";
    finding.page = copy.from;
    finding.owner = "nobody";
    finding.event = plan.event;
    finding.message = fmt::format("{} rows are copied from page {} of pool {}, which nobody holds", copy.rows,
                                  copy.from, name(copy.pool));
    findings_.push_back(std::move(finding));
    repeats_.push_back(0);
  }
}

void LifetimeChecker::tables(std::span<const HeldTable> all, const StepPlan& plan) {
  for (const HeldTable& held : all) {
    const auto step = std::ranges::find(plan.requests, held.request, &RequestStep::request);
    if (step == plan.requests.end()) continue;
    const auto& table = (*step->tables)[static_cast<std::size_t>(held.pool)];
    for (std::size_t i = 0; i < held.pages.size(); ++i) {
      const std::size_t item = static_cast<std::size_t>(held.first) + i;
      const std::int32_t right = item < table.size() ? table[item] : -1;
      if (held.pages[i] == right) continue;
      compare::Finding finding;
      finding.step = plan.index;
      finding.layer = -1;
      finding.kind = "table_differs";
      finding.page = held.pages[i];
      finding.request = rows_.request_name(held.request);
      finding.owner = rows_.request_name(ledger_.holder_of(held.pool, held.pages[i]));
      finding.event = plan.event;
      finding.message =
          fmt::format("the engine's table of {} for pool {} names page {} as item {}, the allocator gave {}",
                      finding.request, name(held.pool), held.pages[i], item,
                      right < 0 ? std::string("none") : fmt::format("page {}", right));
      findings_.push_back(std::move(finding));
      repeats_.push_back(0);
      break;  // one for each table
    }
  }
}

void LifetimeChecker::layer(const Engine& engine, const StepPlan& plan, int layer,
                            std::span<const Write> writes) {
  pool_reads(plan, layer);  // of the state as it was before the step
  for (const Write& one : writes) write(plan, layer, one);
  if (plan.kind == StepKind::restore || plan.rows.empty()) return;
  if (has_indexer(kind(layer))) score_reads(engine, plan, layer);
  list_reads(engine, plan, layer);
}

void LifetimeChecker::write(const StepPlan& plan, int layer, const Write& write) {
  CacheShadow& shadow = shadow_.at(layer, write.cache);
  const CacheShape& shape = shadow.shape();
  const WantedRow row = rows_.wanted(kind(layer), write.cache, write.request, write.index);
  const Access access{layer, write.stage, write.cache, "writes", "write"};
  int bank = 0;
  if (shape.online) {
    const auto step = std::ranges::find(plan.requests, write.request, &RequestStep::request);
    if (step != plan.requests.end() && step->verify) bank = 1 + write.index - step->begin;
  }
  const std::int64_t right = rows_.slot(shape, write.request, write.index, bank);
  const RowFault place =
      write.slot == right && !shape.paged ? RowFault::none : rows_.place(shadow, write.request, write.slot);
  if (place != RowFault::none) {
    report(access, std::string(name(place == RowFault::unwritten ? RowFault::freed : place)), row, write.slot,
           rows_.state_text(shadow, write.slot));
  } else if (write.slot != right) {
    report(access, "misplaced", row, write.slot,
           fmt::format("the row belongs in {}", rows_.place_text(shadow, right)));
  } else if (shape.paged && ledger_.page(shape.pool, shadow.unit(write.slot)).holders > 1) {
    report(
        access, "shared", row, write.slot,
        fmt::format("{} requests hold the page", ledger_.page(shape.pool, shadow.unit(write.slot)).holders));
  }
  if (place == RowFault::outside) return;
  const auto step = static_cast<std::int32_t>(plan.index);
  shadow.put(write.slot, {write.request, write.index, step, step, row.content});
}

void LifetimeChecker::check(const Access& access, const WantedRow& wanted, std::int64_t slot) {
  const CacheShadow& shadow = shadow_.at(access.layer, access.cache);
  const RowFault fault = rows_.row(shadow, wanted, slot);
  if (fault == RowFault::none) return;
  std::string why;
  if (fault == RowFault::stale) {
    const Stamp& stamp = *shadow.find(slot);
    why = stamp.index != wanted.index
              ? fmt::format("it holds {}", row_text(access.cache, stamp.index))
              : std::string("it holds another token of that position, one that was rolled back or replaced");
  } else if (fault == RowFault::unwritten) {
    why = rows_.state_text(shadow, slot) + ", and nothing was written there since";
  } else if (slot >= 0) {
    why = rows_.state_text(shadow, slot);
  }
  report(access, std::string(name(fault)), wanted, slot, std::move(why));
}

void LifetimeChecker::report(const Access& access, const std::string& fault, const WantedRow& wanted,
                             std::int64_t slot, std::string why) {
  const CacheShadow& shadow = shadow_.at(access.layer, access.cache);
  const std::string kind_text = std::string(access.kind) + "_" + fault;
  const auto [known, added] = found_.try_emplace(
      Key{access.layer, access.stage, access.cache, kind_text, wanted.request}, findings_.size());
  if (!added) {
    ++repeats_[known->second];
    return;
  }
  compare::Finding finding;
  finding.step = plan_->index;
  finding.layer = access.layer;
  finding.kind = kind_text;
  finding.cache = access.cache;
  finding.stage = access.stage;
  finding.event = plan_->event;
  finding.request = rows_.request_name(wanted.request);
  (holds_entries(access.cache) ? finding.entry : finding.position) = wanted.index;
  if (slot >= 0) {
    finding.slot = slot;
    finding.page = shadow.shape().paged ? shadow.unit(slot) : slot;
    if (shadow.shape().paged) finding.offset = shadow.row(slot);
  }
  finding.owner = rows_.holder_text(shadow, slot);
  finding.last_writer = rows_.writer_text(shadow, access.cache, slot);
  finding.message = fmt::format("{} {} {} of {} in cache {} at {}{}{}", name(access.stage), access.verb,
                                row_text(access.cache, wanted.index), finding.request, name(access.cache),
                                rows_.place_text(shadow, slot), why.empty() ? "" : ": ", why);
  findings_.push_back(std::move(finding));
  repeats_.push_back(0);
}

/// Online state: the accepted bank of a verify step becomes the committed one.
void LifetimeChecker::commit_banks(const StepPlan& plan) {
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    if (!shadow_.has(layer, Cache::state) || !shadow_.at(layer, Cache::state).shape().online) continue;
    CacheShadow& shadow = shadow_.at(layer, Cache::state);
    for (const RequestStep& step : plan.requests) {
      const std::int32_t accepted = step.committed - step.begin;
      if (!step.verify || accepted <= 0) continue;
      const std::int64_t bank = std::int64_t{step.state_base} * shadow.shape().base_rows;
      if (const Stamp* stamp = shadow.find(bank + accepted)) shadow.put(bank, Stamp(*stamp));
    }
  }
}

/// All that the step may write; rows of a fill are put in from outside.
void LifetimeChecker::write_permitted(const StepPlan& plan) {
  const auto step = static_cast<std::int32_t>(plan.index);
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    for (const compare::PermittedWrite& row : compare::permitted_writes(config_, plan, layer)) {
      const WantedRow wanted = rows_.wanted(kind(layer), row.cache, row.request, row.index);
      shadow_.at(layer, row.cache).put(row.slot, {row.request, row.index, step, step, wanted.content});
    }
  }
}

std::vector<compare::Finding> LifetimeChecker::broken_off() {
  for (std::size_t i = 0; i < findings_.size(); ++i) {
    compare::Finding& finding = findings_[i];
    if (repeats_[i] > 0) finding.message += fmt::format("; and {} rows more", repeats_[i]);
    if (finding.stage) finding.message += "; last written by " + finding.last_writer;
  }
  return std::move(findings_);
}

std::vector<compare::Finding> LifetimeChecker::end(const StepPlan& plan) {
  if (plan.fill) write_permitted(plan);
  commit_banks(plan);
  contents_.end(plan);
  plan_errors(plan);
  live_rows(plan);
  return broken_off();
}

void LifetimeChecker::plan_errors(const StepPlan& plan) {
  const auto add = [&](const std::string& kind_text, std::int64_t page, std::int32_t request,
                       std::string message) {
    compare::Finding finding;
    finding.step = plan.index;
    finding.layer = -1;
    finding.kind = kind_text;
    finding.page = page;
    finding.owner = rows_.request_name(request);
    finding.event = plan.event;
    finding.message = std::move(message);
    findings_.push_back(std::move(finding));
    repeats_.push_back(0);
  };
  for (const PageLedger::Error& error : ledger_.errors())
    add(error.kind, error.page, error.request, error.message);
  if (!plan.poison) return;
  for (const PageRef& ref : plan.poison->pages) {
    if (!ledger_.page(ref.pool, ref.page).held) continue;
    const std::int32_t holder = ledger_.holder_of(ref.pool, ref.page);
    add("poison_held", ref.page, holder,
        fmt::format("page {} of pool {} is overwritten although {} holds it", ref.page, name(ref.pool),
                    rows_.request_name(holder)));
  }
  for (const std::int32_t base : plan.poison->state_bases) {
    if (ledger_.base(base).request < 0) continue;
    add("poison_held", base, ledger_.base(base).request,
        fmt::format("state base {} is overwritten although {} holds it", base,
                    rows_.request_name(ledger_.base(base).request)));
  }
}

/// Only requests that the step had to do with: rows of the others were not touched, or a write is reported.
void LifetimeChecker::live_rows(const StepPlan& plan) {
  std::map<std::int32_t, const BlockTables*> seen;
  for (const LiveRequest& live : plan.live) {
    seen[live.request] = live.tables.get();
    const auto before = seen_.find(live.request);
    const auto step = std::ranges::find(plan.requests, live.request, &RequestStep::request);
    const bool took_part = step != plan.requests.end();
    if (!took_part && before != seen_.end() && before->second == live.tables.get() && plan.released.empty())
      continue;
    for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
      // Entries of earlier steps were looked at when they were closed, or when their pages changed hands.
      const bool known = before != seen_.end() && took_part;
      const std::int32_t first_entry =
          known && has_compressor(kind(layer)) ? step->begin / ratio(kind(layer)) : 0;
      for (const Cache cache : kCaches) {
        if (shadow_.has(layer, cache)) live_rows_of(live, layer, cache, first_entry);
      }
    }
  }
  seen_ = std::move(seen);
}

void LifetimeChecker::live_rows_of(const LiveRequest& live, int layer, Cache cache,
                                   std::int32_t first_entry) {
  const LayerKind of = kind(layer);
  const CacheShape& shape = shadow_.at(layer, cache).shape();
  std::int32_t first = 0;
  std::int32_t end = live.length;
  if (cache == Cache::window) {
    first = first_live_window(live.length);
  } else if (holds_entries(cache)) {
    first = first_entry;
    end = live_entries(of, live.length);
  } else if (shape.online) {
    first = live.length % ratio(of) == 0 ? live.length : live.length - 1;
  } else {
    first = first_live_state(of, live.length);
  }
  // What was found in a stage of this step is not said again.
  const auto told = [&](const auto& item) {
    return item.first.layer == layer && item.first.cache == cache && item.first.request == live.request;
  };
  if (std::ranges::any_of(found_, told)) return;
  const Access access{layer, writer_of(cache), cache, "leaves", "live"};
  for (std::int32_t index = first; index < end; ++index) {
    const std::int64_t slot = rows_.slot(shape, live.request, index);
    if (slot < 0 && cache == Cache::window) continue;  // its page was evicted
    check(access, rows_.wanted(of, cache, live.request, index), slot);
  }
}

void LifetimeChecker::assume_right(const StepPlan& plan) {
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) pool_reads(plan, layer);
  write_permitted(plan);
}

void LifetimeChecker::name_writers(std::vector<compare::Finding>& findings) {
  for (compare::Finding& finding : findings) {
    if (!finding.cache || !finding.page || !finding.last_writer.empty()) continue;
    const CacheShadow& shadow = shadow_.at(finding.layer, *finding.cache);
    const bool paged = shadow.shape().paged;
    if (paged && !finding.offset) continue;
    const std::int64_t slot =
        paged ? *finding.page * shadow.shape().page_rows + *finding.offset : *finding.page;
    finding.slot = slot;
    finding.last_writer = rows_.writer_text(shadow, *finding.cache, slot);
  }
}

}  // namespace dsv4::oracle
