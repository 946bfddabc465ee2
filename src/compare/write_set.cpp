#include "compare/write_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

constexpr Cache kCaches[]{Cache::window, Cache::entries, Cache::index_entries, Cache::state,
                          Cache::index_state};

// The physical form of a cache: units (pages, or single state rows), and where row k of a unit keeps its
// bytes.
struct Form {
  std::optional<Pool> pool;  ///< empty: addressed by state base
  std::int64_t units = 0;
  std::int64_t unit_rows = 1;
  std::int64_t value_bytes = 0;  ///< 0: rows are equal shares of the unit (state)
  std::int64_t scale_bytes = 0;
  std::int64_t rows_per_base = 0;

  std::vector<std::pair<std::int64_t, std::int64_t>> ranges(std::int64_t row, std::int64_t unit_bytes) const {
    if (value_bytes == 0) {
      const std::int64_t size = unit_bytes / unit_rows;
      return {{row * size, (row + 1) * size}};
    }
    const std::int64_t scales = unit_rows * value_bytes;
    return {{row * value_bytes, (row + 1) * value_bytes},
            {scales + row * scale_bytes, scales + (row + 1) * scale_bytes}};
  }
};

Form form_of(const RunConfig& config, LayerKind kind, Cache which) {
  const CacheConfig& cache = config.cache;
  const bool csa = kind == LayerKind::csa;
  Form form;
  switch (which) {
    case Cache::window:
      form.unit_rows = cache.swa_page;
      break;
    case Cache::entries:
      form.unit_rows = csa ? cache.c4_page : cache.c128_page;
      break;
    case Cache::index_entries:
      form.unit_rows = cache.index_page;
      break;
    case Cache::state:
    case Cache::index_state: {
      const bool paged = csa ? cache.c4_state != C4State::ring : cache.c128_state == C128State::paged;
      if (paged) {
        form.unit_rows = csa ? layout::kStatePageRowsC4 : layout::kStatePageRowsC128;
        break;
      }
      const bool online = !csa && cache.c128_state == C128State::online;
      form.rows_per_base = online ? online_banks(cache) : csa ? ring_rows_c4(cache) : ring_rows_c128(cache);
      form.units = std::int64_t{config.state_bases} * form.rows_per_base;
      return form;
    }
  }
  form.pool = pool_of(kind, which);
  form.units = config.pool_pages[static_cast<std::size_t>(*form.pool)];
  if (which == Cache::window || which == Cache::entries) {
    const layout::RowForm row = layout::row_form(config.profile.get<KvCache>());
    form.value_bytes = row.value_bytes;
    form.scale_bytes = row.scale_bytes;
  } else if (which == Cache::index_entries) {
    const layout::RowForm row = layout::row_form(config.profile.get<IndexCache>());
    form.value_bytes = row.value_bytes;
    form.scale_bytes = row.scale_bytes;
  }
  return form;
}

std::string request_name(const RunConfig& config, std::int32_t request) {
  if (request < 0 || static_cast<std::size_t>(request) >= config.requests.size()) return "nobody";
  return config.requests[static_cast<std::size_t>(request)];
}

std::string row_name(const RunConfig& config, Cache cache, std::int32_t request, std::int64_t index) {
  return fmt::format("{} {} {}", request_name(config, request),
                     cache == Cache::entries || cache == Cache::index_entries ? "entry" : "position", index);
}

using Tables =
    std::map<std::int32_t, std::pair<const BlockTables*, std::int32_t>>;  ///< request -> tables, base

// Who holds a row, by the tables of the step and of the requests that were live before it.
std::string owner_of(const RunConfig& config, Cache cache, const Form& form, std::int64_t unit,
                     std::int64_t row, const Tables& tables) {
  for (const auto& [request, held] : tables) {
    if (!form.pool) {
      if (unit / form.rows_per_base == held.second) {
        return fmt::format("{} row {} of its state", request_name(config, request),
                           unit % form.rows_per_base);
      }
      continue;
    }
    if (held.first == nullptr) continue;
    const std::vector<std::int32_t>& table = (*held.first)[static_cast<std::size_t>(*form.pool)];
    for (std::size_t item = 0; item < table.size(); ++item) {
      if (table[item] != unit) continue;
      return row_name(config, cache, request, static_cast<std::int64_t>(item) * form.unit_rows + row);
    }
  }
  return "nobody";
}

// Bytes of a cache that the step may change, beside the rows that the engine says it wrote.
void permit_lifecycle(const RunConfig& config, const StepPlan& plan, const Form& form, Cache cache,
                      std::set<std::int64_t>& whole_units,
                      std::map<std::int64_t, std::int64_t>& copied_rows) {
  const auto pages = [&](const std::vector<PageRef>& list) {
    for (const PageRef& page : list) {
      if (form.pool == page.pool) whole_units.insert(page.page);
    }
  };
  const auto bases = [&](const std::vector<std::int32_t>& list) {
    if (form.pool || (cache != Cache::state && cache != Cache::index_state)) return;
    for (const std::int32_t base : list) {
      for (std::int64_t row = 0; row < form.rows_per_base; ++row) {
        whole_units.insert(base * form.rows_per_base + row);
      }
    }
  };
  if (config.cache.poison_freed) {
    pages(plan.released);
    bases(plan.released_bases);
  }
  if (plan.poison) {
    pages(plan.poison->pages);
    bases(plan.poison->state_bases);
  }
  for (const PageCopy& copy : plan.copies) {
    if (form.pool == copy.pool)
      copied_rows[copy.to] = std::max<std::int64_t>(copied_rows[copy.to], copy.rows);
  }
}

class CacheCheck {
 public:
  CacheCheck(const RunConfig& config, const StepPlan& plan, int layer, Cache cache, const Tables& tables,
             std::vector<Finding>& out)
      : config_(config),
        plan_(plan),
        layer_(layer),
        cache_(cache),
        tables_(tables),
        out_(out),
        form_(form_of(config, config.layers[static_cast<std::size_t>(layer)], cache)) {}

  const Form& form() const { return form_; }

  void expect_replaced(std::span<const Write> rows) {
    for (const Write& row : rows) {
      if (row.cache == cache_) replaced_[row.slot] = &row;
    }
  }

  void check_list(std::span<const Write> writes, std::span<const PermittedWrite> permitted) {
    using Key = std::tuple<std::int64_t, std::int32_t, std::int32_t>;
    std::map<Key, bool> allowed;  // -> written
    std::map<std::int64_t, const PermittedWrite*> by_slot;
    for (const PermittedWrite& row : permitted) {
      if (row.cache != cache_) continue;
      allowed[{row.slot, row.request, row.index}] = false;
      by_slot[row.slot] = &row;
    }
    for (const Write& write : writes) {
      if (write.cache != cache_ || rewrites_kept_row(write)) continue;
      last_[write.slot] = &write;
      const auto found = allowed.find({write.slot, write.request, write.index});
      if (found != allowed.end()) {
        found->second = true;
        continue;
      }
      const auto slot = by_slot.find(write.slot);
      add("write_outside_plan", write.slot / form_.unit_rows, write.slot % form_.unit_rows, {},
          fmt::format("{} wrote {} to slot {} of cache {}, {}", name(write.stage),
                      row_name(config_, cache_, write.request, write.index), write.slot, name(cache_),
                      slot == by_slot.end()
                          ? std::string("which the plan gives to no row of this step")
                          : "where the plan expects " +
                                row_name(config_, cache_, slot->second->request, slot->second->index)));
    }
    for (const PermittedWrite& row : permitted) {
      if (row.cache != cache_ || !row.required || allowed[{row.slot, row.request, row.index}]) continue;
      add("write_missing", row.slot / form_.unit_rows, row.slot % form_.unit_rows, {},
          fmt::format("{} was not written to slot {} of cache {}",
                      row_name(config_, cache_, row.request, row.index), row.slot, name(cache_)));
    }
    if (plan_.fill) {
      // Synthetic rows are put in from outside and are not in the engine's list.
      for (const PermittedWrite& row : permitted) {
        if (row.cache == cache_ && !row.required) filled_.insert(row.slot);
      }
    }
    permit_lifecycle(config_, plan_, form_, cache_, whole_units_, copied_rows_);
    const bool online = cache_ == Cache::state && config_.cache.c128_state == C128State::online &&
                        config_.layers[static_cast<std::size_t>(layer_)] == LayerKind::hca;
    if (online) permit_commit();
  }

  void check_unit(std::int64_t unit, std::span<const std::byte> before, std::span<const std::byte> after) {
    const auto size = static_cast<std::int64_t>(after.size());
    const bool null_page = form_.pool && unit == layout::kNullPage;
    const bool changed = before.size() != after.size() || !std::ranges::equal(before, after);
    if (null_page && changed) {
      add("null_page", unit, {}, first_change(before, after),
          fmt::format("the null page of cache {} changed", name(cache_)));
      return;
    }
    if (!whole_units_.contains(unit)) check_rows(unit, after, size);
    if (!changed || whole_units_.contains(unit)) return;
    std::vector<bool> free(after.size(), false);
    const auto release = [&](std::int64_t row) {
      for (const auto& [begin, end] : form_.ranges(row, size)) {
        for (std::int64_t byte = begin; byte < std::min(end, size); ++byte)
          free[static_cast<std::size_t>(byte)] = true;
      }
    };
    const std::int64_t first_slot = unit * form_.unit_rows;
    for (std::int64_t row = 0; row < form_.unit_rows; ++row) {
      if (last_.contains(first_slot + row) || filled_.contains(first_slot + row)) release(row);
    }
    if (const auto copy = copied_rows_.find(unit); copy != copied_rows_.end()) {
      for (std::int64_t row = 0; row < copy->second; ++row) release(row);
    }
    report_changes(unit, before, after, free);
  }

 private:
  // A restore step may compute a window row again that it could keep. Such a row has to hold what it held: it
  // is no written row, so any byte that changes is reported.
  bool rewrites_kept_row(const Write& write) const {
    if (cache_ != Cache::window || plan_.kind != StepKind::restore) return false;
    return std::ranges::any_of(plan_.requests, [&](const RequestStep& step) {
      if (step.request != write.request || write.index < step.begin || write.index >= step.from.window) return false;
      const std::vector<std::int32_t>& table = (*step.tables)[static_cast<std::size_t>(*form_.pool)];
      const std::int64_t item = write.index / form_.unit_rows;
      return item < std::ssize(table) && table[static_cast<std::size_t>(item)] >= 0 &&
             table[static_cast<std::size_t>(item)] * form_.unit_rows + write.index % form_.unit_rows == write.slot;
    });
  }

  // The accepted bank of a verify step is copied into the committed one, which must then hold what was written there.
  void permit_commit() {
    for (const RequestStep& step : plan_.requests) {
      const std::int32_t accepted = step.committed - step.begin;
      if (!step.verify || accepted <= 0) continue;
      const std::int64_t bank = step.state_base * form_.rows_per_base;
      const auto written = last_.find(bank + accepted);
      if (written == last_.end()) continue;  // said to be missing
      last_[bank] = written->second;
      committed_[bank] = bank + accepted;
    }
  }

  static std::int64_t first_change(std::span<const std::byte> before, std::span<const std::byte> after) {
    std::size_t byte = 0;
    while (byte < std::min(before.size(), after.size()) && before[byte] == after[byte]) ++byte;
    return static_cast<std::int64_t>(byte);
  }

  std::int64_t row_of(std::int64_t byte, std::int64_t unit_bytes) const {
    for (std::int64_t row = 0; row < form_.unit_rows; ++row) {
      for (const auto& [begin, end] : form_.ranges(row, unit_bytes)) {
        if (byte >= begin && byte < end) return row;
      }
    }
    return -1;
  }

  // One finding for each row that changed without a write.
  void report_changes(std::int64_t unit, std::span<const std::byte> before, std::span<const std::byte> after,
                      const std::vector<bool>& free) {
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> rows;  // row -> first byte, count
    for (std::size_t byte = 0; byte < after.size(); ++byte) {
      if (free[byte] || before[byte] == after[byte]) continue;
      const std::int64_t row =
          row_of(static_cast<std::int64_t>(byte), static_cast<std::int64_t>(after.size()));
      auto& [first, count] = rows.try_emplace(row, static_cast<std::int64_t>(byte), 0).first->second;
      ++count;
    }
    for (const auto& [row, where] : rows) {
      const std::string place = row < 0
                                    ? "behind the last row"
                                    : fmt::format("row {}", form_.pool ? row : unit % form_.rows_per_base);
      add("changed_without_write", unit, row < 0 ? std::optional<std::int64_t>() : row, where.first,
          fmt::format("{} bytes of cache {}, {} {}, {} changed without a write", where.second, name(cache_),
                      form_.pool ? "page" : "state row", unit, place));
    }
  }

  // What the engine says it wrote, or what was put over it, is what memory holds.
  void check_rows(std::int64_t unit, std::span<const std::byte> after, std::int64_t size) {
    for (std::int64_t row = 0; row < form_.unit_rows; ++row) {
      const auto found = last_.find(unit * form_.unit_rows + row);
      if (found == last_.end() || filled_.contains(found->first)) continue;
      std::vector<std::byte> held;
      for (const auto& [begin, end] : form_.ranges(row, size)) {
        held.insert(held.end(), after.begin() + begin, after.begin() + std::min(end, size));
      }
      const auto commit = committed_.find(found->first);
      const auto replaced = replaced_.find(commit == committed_.end() ? found->first : commit->second);
      if (held == (replaced == replaced_.end() ? found->second : replaced->second)->bytes) continue;
      add("memory_differs_from_write", unit, row, {},
          fmt::format("cache {} slot {} does not hold the {} bytes that {} wrote for {}", name(cache_),
                      found->first, found->second->bytes.size(), name(found->second->stage),
                      row_name(config_, cache_, found->second->request, found->second->index)));
    }
  }

  void add(std::string kind, std::int64_t unit, std::optional<std::int64_t> row,
           std::optional<std::int64_t> byte, std::string message) {
    Finding finding;
    finding.step = plan_.index;
    finding.layer = layer_;
    finding.kind = std::move(kind);
    finding.cache = cache_;
    finding.page = unit;
    finding.offset = row;
    finding.byte = byte;
    finding.owner = owner_of(config_, cache_, form_, unit, row.value_or(0), tables_);
    finding.message = std::move(message);
    out_.push_back(std::move(finding));
  }

  const RunConfig& config_;
  const StepPlan& plan_;
  int layer_;
  Cache cache_;
  const Tables& tables_;
  std::vector<Finding>& out_;
  Form form_;
  std::map<std::int64_t, const Write*> last_;  ///< by slot
  std::map<std::int64_t, const Write*> replaced_;
  std::map<std::int64_t, std::int64_t> committed_;  ///< bank 0 -> the bank that it was copied from
  std::set<std::int64_t> filled_;       ///< slots written from outside
  std::set<std::int64_t> whole_units_;  ///< poisoned
  std::map<std::int64_t, std::int64_t> copied_rows_;
};

}  // namespace

WriteSetChecker::WriteSetChecker(const RunConfig& config) : config_(config) {}

void WriteSetChecker::before(const Engine& engine) {
  memory_.clear();
  replaced_.assign(config_.layers.size(), {});
  if (!engine.info().byte_state) return;
  for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
    for (const Cache cache : kCaches) {
      if (!has_cache(config_.layers[layer], cache)) continue;
      Memory memory{static_cast<int>(layer), cache, {}};
      const std::int64_t units = form_of(config_, config_.layers[layer], cache).units;
      for (std::int64_t unit = 0; unit < units; ++unit) {
        memory.units.push_back(engine.read_row(memory.layer, cache, unit));
      }
      memory_.push_back(std::move(memory));
    }
  }
}

void WriteSetChecker::replaced(int layer, std::span<const Write> rows) {
  std::vector<Write>& all = replaced_.at(static_cast<std::size_t>(layer));
  all.insert(all.end(), rows.begin(), rows.end());
}

std::vector<Finding> WriteSetChecker::after(const Engine& engine, const StepPlan& plan) {
  std::vector<Finding> findings;
  Tables tables;
  for (const LiveRequest& live : live_) tables[live.request] = {live.tables.get(), live.state_base};
  for (const RequestStep& step : plan.requests) tables[step.request] = {step.tables.get(), step.state_base};
  int permitted_layer = -1;
  std::vector<PermittedWrite> permitted;
  for (const Memory& memory : memory_) {
    if (memory.layer != permitted_layer) {
      permitted = permitted_writes(config_, plan, memory.layer);
      permitted_layer = memory.layer;
    }
    CacheCheck check(config_, plan, memory.layer, memory.cache, tables, findings);
    check.check_list(engine.writes(memory.layer), permitted);
    check.expect_replaced(replaced_[static_cast<std::size_t>(memory.layer)]);
    for (std::size_t unit = 0; unit < memory.units.size(); ++unit) {
      const auto index = static_cast<std::int64_t>(unit);
      check.check_unit(index, memory.units[unit], engine.read_row(memory.layer, memory.cache, index));
    }
  }
  live_ = plan.live;
  return findings;
}

}  // namespace dsv4::compare
