#include "oracle/lifetime/row_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::oracle {

std::string_view name(RowFault fault) {
  switch (fault) {
    case RowFault::none:
      return "none";
    case RowFault::outside:
      return "outside";
    case RowFault::freed:
      return "freed";
    case RowFault::foreign:
      return "foreign";
    case RowFault::unwritten:
      return "unwritten";
    case RowFault::stale:
      return "stale";
  }
  throw InternalError("unknown row fault");
}

Stage writer_of(Cache cache) {
  switch (cache) {
    case Cache::window:
      return Stage::kv_window;
    case Cache::entries:
      return Stage::compress_finish;
    case Cache::index_entries:
      return Stage::indexer_finish;
    case Cache::state:
      return Stage::compress_state;
    case Cache::index_state:
      return Stage::indexer_state;
  }
  throw InternalError("unknown cache");
}

bool holds_entries(Cache cache) {
  return cache == Cache::entries || cache == Cache::index_entries;
}

WantedRow RowCheck::wanted(LayerKind kind, Cache cache, std::int32_t request, std::int32_t index) const {
  const std::int64_t token = holds_entries(cache) ? (std::int64_t{index} + 1) * ratio(kind) - 1 : index;
  return {request, index, contents_.of(request, token)};
}

std::int64_t RowCheck::slot(const CacheShape& shape, std::int32_t request, std::int32_t index,
                            int bank) const {
  const PageLedger::Request* holder = ledger_.request(request);
  if (holder == nullptr || index < 0) return -1;
  if (!shape.paged && holder->base < 0) return -1;
  return slot_of(shape, *holder->tables, holder->base, index, bank);
}

std::int64_t RowCheck::slots(const CacheShape& shape) const {
  return physical_rows(config_, shape) * (shape.paged ? shape.page_rows : 1);
}

RowFault RowCheck::place(const CacheShadow& shadow, std::int32_t request, std::int64_t slot) const {
  const CacheShape& shape = shadow.shape();
  if (slot < 0 || slot >= slots(shape)) return RowFault::outside;
  const std::int64_t unit = shadow.unit(slot);
  if (!shape.paged) {
    const PageLedger::Base& base = ledger_.base(unit);
    if (base.request == request) return RowFault::none;
    return base.request >= 0 ? RowFault::foreign : base.since < 0 ? RowFault::unwritten : RowFault::freed;
  }
  if (unit == layout::kNullPage) return RowFault::outside;
  const PageLedger::Page& page = ledger_.page(shape.pool, unit);
  if (!page.held) return page.since < 0 ? RowFault::unwritten : RowFault::freed;
  const PageLedger::Request* holder = ledger_.request(request);
  if (holder == nullptr) return RowFault::foreign;
  const auto& table = (*holder->tables)[static_cast<std::size_t>(shape.pool)];
  return std::ranges::find(table, unit) == table.end() ? RowFault::foreign : RowFault::none;
}

RowFault RowCheck::row(const CacheShadow& shadow, const WantedRow& wanted, std::int64_t slot) const {
  const CacheShape& shape = shadow.shape();
  if (slot < 0 || slot >= slots(shape)) return RowFault::outside;
  const Stamp* const stamp = shadow.find(slot);
  const std::int64_t unit = shadow.unit(slot);
  std::int64_t since = 0;
  bool held = false;
  if (shape.paged) {
    const PageLedger::Page& page = ledger_.page(shape.pool, unit);
    held = page.held;
    since = page.since;
  } else {
    const PageLedger::Base& base = ledger_.base(unit);
    held = base.request == wanted.request;
    since = base.since;
  }
  const bool written = stamp != nullptr && stamp->step >= 0 && stamp->placed >= since;
  const bool right = written && stamp->index == wanted.index &&
                     (stamp->content == wanted.content || stamp->content == 0 || wanted.content == 0);
  // The common case needs no search of a table: the request's own slot, held, with the right row.
  if (right && held && this->slot(shape, wanted.request, wanted.index) == slot) return RowFault::none;
  if (const RowFault fault = place(shadow, wanted.request, slot); fault != RowFault::none) return fault;
  if (!written) return RowFault::unwritten;
  return right ? RowFault::none : RowFault::stale;
}

std::string RowCheck::request_name(std::int32_t request) const {
  const auto index = static_cast<std::size_t>(request);
  return request >= 0 && index < config_.requests.size() ? config_.requests[index] : "nobody";
}

std::string RowCheck::place_text(const CacheShadow& shadow, std::int64_t slot) const {
  if (slot < 0) return "no slot: its table holds no page for it";
  if (!shadow.shape().paged) {
    return fmt::format("slot {} (state base {}, row {})", slot, shadow.unit(slot), shadow.row(slot));
  }
  return fmt::format("slot {} (page {}, offset {})", slot, shadow.unit(slot), shadow.row(slot));
}

std::string RowCheck::holder_text(const CacheShadow& shadow, std::int64_t slot) const {
  if (slot < 0) return "nobody";
  const std::int64_t unit = shadow.unit(slot);
  return request_name(shadow.shape().paged ? ledger_.holder_of(shadow.shape().pool, unit)
                                           : ledger_.base(unit).request);
}

std::string RowCheck::state_text(const CacheShadow& shadow, std::int64_t slot) const {
  const std::int64_t unit = shadow.unit(slot);
  const bool paged = shadow.shape().paged;
  const char* const what = paged ? "the page" : "the state base";
  const PageLedger::Page& page = ledger_.page(shadow.shape().pool, unit);
  const PageLedger::Base& base = ledger_.base(unit);
  const bool held = paged ? page.held : base.request >= 0;
  const std::int64_t since = paged ? page.since : base.since;
  const std::int64_t until = paged ? page.until : base.until;
  if (paged && unit == layout::kNullPage) return "the page is the null page";
  if (slot >= slots(shadow.shape())) return "the cache has no such slot";
  if (held) return fmt::format("{} is held by {} since step {}", what, holder_text(shadow, slot), since);
  if (since < 0) return fmt::format("{} was never handed out", what);
  return fmt::format("{} was given back in step {}", what, until);
}

std::string RowCheck::writer_text(const CacheShadow& shadow, Cache cache, std::int64_t slot) const {
  const Stamp* const stamp = slot < 0 ? nullptr : shadow.find(slot);
  if (stamp == nullptr || stamp->step < 0) return "nobody";
  std::string text = fmt::format("{}, {} {}, in step {} ({})", request_name(stamp->request),
                                 holds_entries(cache) ? "entry" : "position", stamp->index, stamp->step,
                                 name(writer_of(cache)));
  if (stamp->placed > stamp->step) text += fmt::format(", brought there in step {}", stamp->placed);
  return text;
}

}  // namespace dsv4::oracle
