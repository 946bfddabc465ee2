#include "scenario/held_rows.hpp"

#include <algorithm>

#include "model/error.hpp"

namespace dsv4::scenario {
namespace {

/// The range of positions to recompute, grown need by need.
class Range {
 public:
  void need(std::int32_t begin, std::int32_t end) {
    begin_ = any_ ? std::min(begin_, begin) : begin;
    end_ = std::max(end_, end);
    any_ = true;
  }
  bool any() const { return any_; }
  std::int32_t begin() const { return begin_; }
  std::int32_t end() const { return end_; }

 private:
  bool any_ = false;
  std::int32_t begin_ = 0;
  std::int32_t end_ = 0;
};

/// Rows first .. length - 1 of which `has` says what is there. Returns the first that is missing, or length.
template <class Has>
std::int32_t need_rows(std::int32_t first, std::int32_t length, const Has& has, Range& range) {
  std::int32_t first_missing = length;
  for (std::int32_t p = first; p < length; ++p) {
    if (has(p)) continue;
    first_missing = std::min(first_missing, p);
    range.need(p, p + 1);
  }
  return first_missing;
}

/// Entries done .. needed - 1 of a compressor with state rows. The range starts where the state stops
/// helping.
void need_entries(LayerKind kind, std::int32_t done, std::int32_t needed, const StateRows& state,
                  Range& range) {
  if (done >= needed) return;
  const std::int32_t closing = (done + 1) * ratio(kind) - 1;
  std::int32_t begin = std::max(0, kind == LayerKind::csa ? 4 * done - 4 : 128 * done);
  while (begin < closing && state.has(begin)) ++begin;
  range.need(begin, needed * ratio(kind));
}

/// Online C128: the accumulator runs from the start of a group. Returns the first position it has to take in.
std::int32_t need_online(const HeldRows& held, std::int32_t length, Range& range) {
  const std::int32_t entries = length / 128;
  const std::int32_t accumulated = held.state_c128.accumulated();
  const auto start_of = [&](std::int32_t group) {
    const bool inside = accumulated > 128 * group && accumulated < 128 * (group + 1);
    return inside ? accumulated : 128 * group;
  };
  std::int32_t from = length;
  if (held.entries_c128 < entries) {
    from = start_of(held.entries_c128);
    range.need(from, 128 * entries);
  }
  if (length % 128 != 0 && (accumulated != length || from < length)) {
    const std::int32_t open = std::min(from, accumulated < length ? start_of(entries) : 128 * entries);
    from = std::min(from, open);
    range.need(from, length);
  }
  return from;
}

}  // namespace

StateRows::StateRows(Form form, int ring_rows) : form_(form) {
  if (form == Form::ring) slots_.assign(static_cast<std::size_t>(ring_rows), -1);
}

void StateRows::write(std::int32_t position) {
  switch (form_) {
    case Form::ring:
      slots_[static_cast<std::size_t>(position) % slots_.size()] = position;
      break;
    case Form::paged:
      rows_.insert(position);
      break;
    case Form::online:
      accumulated_ = position + 1;
      break;
  }
}

bool StateRows::has(std::int32_t position) const {
  if (form_ == Form::ring) return slots_[static_cast<std::size_t>(position) % slots_.size()] == position;
  return rows_.contains(position);
}

void StateRows::cut(std::int32_t length) {
  for (std::int32_t& slot : slots_) {
    if (slot >= length) slot = -1;
  }
  rows_.erase(rows_.lower_bound(length), rows_.end());
  if (accumulated_ > length) accumulated_ = 0;
}

void StateRows::release_below(std::int32_t position) {
  if (form_ == Form::paged) rows_.erase(rows_.begin(), rows_.lower_bound(position));
}

HeldRows HeldRows::none(const CacheConfig& cache) {
  HeldRows held;
  held.state_c4 = StateRows(cache.c4_state == C4State::ring ? StateRows::Form::ring : StateRows::Form::paged,
                            ring_rows_c4(cache));
  const StateRows::Form c128 = cache.c128_state == C128State::ring    ? StateRows::Form::ring
                               : cache.c128_state == C128State::paged ? StateRows::Form::paged
                                                                      : StateRows::Form::online;
  held.state_c128 = StateRows(c128, ring_rows_c128(cache));
  return held;
}

void HeldRows::write_window(std::int32_t position) {
  const auto index = static_cast<std::size_t>(position);
  if (index >= window.size()) window.resize(index + 1, false);
  window[index] = true;
}

void HeldRows::clear_window(std::int32_t first, std::int32_t rows) {
  for (std::int32_t p = first; p < first + rows && static_cast<std::size_t>(p) < window.size(); ++p) {
    window[static_cast<std::size_t>(p)] = false;
  }
}

void HeldRows::cut(std::int32_t length) {
  if (window.size() > static_cast<std::size_t>(length)) window.resize(static_cast<std::size_t>(length));
  state_c4.cut(length);
  state_c128.cut(length);
  entries_c4 = std::min(entries_c4, length / 4);
  entries_c128 = std::min(entries_c128, length / 128);
}

Missing missing_at(const HeldRows& held, const std::vector<LayerKind>& layers, std::int32_t length) {
  const bool csa = std::ranges::count(layers, LayerKind::csa) > 0;
  const bool hca = std::ranges::count(layers, LayerKind::hca) > 0;
  Range range;
  Missing missing;
  KeepFrom& from = missing.from;
  from.state_c4 = from.state_index = from.state_c128 = length;
  from.entries_c4 = length / 4;
  from.entries_c128 = length / 128;
  from.window = need_rows(
      first_live_window(length), length, [&](std::int32_t p) { return held.has_window(p); }, range);
  if (csa) {
    const auto has = [&](std::int32_t p) { return held.state_c4.has(p); };
    from.state_c4 = from.state_index =
        need_rows(first_live_state(LayerKind::csa, length), length, has, range);
    from.entries_c4 = std::min(held.entries_c4, length / 4);
    need_entries(LayerKind::csa, held.entries_c4, length / 4, held.state_c4, range);
  }
  if (hca) {
    from.entries_c128 = std::min(held.entries_c128, length / 128);
    if (held.state_c128.form() == StateRows::Form::online) {
      from.state_c128 = need_online(held, length, range);
    } else {
      const auto has = [&](std::int32_t p) { return held.state_c128.has(p); };
      from.state_c128 = need_rows(first_live_state(LayerKind::hca, length), length, has, range);
      need_entries(LayerKind::hca, held.entries_c128, length / 128, held.state_c128, range);
    }
  }
  missing.any = range.any();
  missing.begin = range.begin();
  missing.end = range.end();
  return missing;
}

}  // namespace dsv4::scenario
