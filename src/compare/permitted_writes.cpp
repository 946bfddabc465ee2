#include <fmt/format.h>

#include "compare/write_set.hpp"
#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

// Collects the permitted rows of one layer, one request at a time, straight from the block tables.
class Collector {
 public:
  Collector(const RunConfig& config, int layer, std::vector<PermittedWrite>& out)
      : config_(config), kind_(config.layers[static_cast<std::size_t>(layer)]), out_(out) {}

  void request(const RequestStep& step) {
    for (std::int32_t p = step.begin; p < step.end; ++p) {
      const bool live = step.verify || p >= first_live_window(step.committed);
      if (p >= step.from.window) {
        paged(Cache::window, *step.tables, step.request, p, config_.cache.swa_page, live);
      }
      if (has_compressor(kind_)) state_row(step, p);
      if (has_compressor(kind_) && (p + 1) % ratio(kind_) == 0) entry(step, (p + 1) / ratio(kind_) - 1);
    }
  }

  // Synthetic content of a request's live rows.
  void fill(const LiveRequest& live) {
    const std::int32_t n = live.length;
    for (std::int32_t p = first_live_window(n); p < n; ++p) {
      paged(Cache::window, *live.tables, live.request, p, config_.cache.swa_page, false);
    }
    if (!has_compressor(kind_)) return;
    for (std::int32_t j = 0; j < live_entries(kind_, n); ++j)
      entry_rows(*live.tables, live.request, j, false);
    for (std::int32_t p = first_live_state(kind_, n); p < n; ++p) {
      if (online()) continue;
      state_rows(*live.tables, live.request, live.state_base, p, false, false);
    }
    if (online()) add(Cache::state, bank(live.state_base, 0), live.request, n - 1, false);
  }

 private:
  bool online() const { return kind_ == LayerKind::hca && config_.cache.c128_state == C128State::online; }
  std::int64_t bank(std::int32_t base, std::int32_t bank) const {
    return std::int64_t{base} * online_banks(config_.cache) + bank;
  }

  void add(Cache cache, std::int64_t slot, std::int32_t request, std::int32_t index, bool required) {
    out_.push_back({cache, slot, request, index, required});
  }

  void paged(Cache cache, const BlockTables& tables, std::int32_t request, std::int32_t index, int rows,
             bool required) {
    const std::vector<std::int32_t>& table = tables[static_cast<std::size_t>(pool_of(kind_, cache))];
    const auto item = static_cast<std::size_t>(index / rows);
    if (item >= table.size() || table[item] < 0) return;
    add(cache, std::int64_t{table[item]} * rows + index % rows, request, index, required);
  }

  void state_row(const RequestStep& step, std::int32_t p) {
    if (online()) {
      if (step.verify) {
        add(Cache::state, bank(step.state_base, 1 + (p - step.begin)), step.request, p, true);
      } else if (p == step.end - 1) {
        add(Cache::state, bank(step.state_base, 0), step.request, p, step.from.state_c128 == 0);
      }
      return;
    }
    if (!step.verify && p < first_live_state(kind_, step.committed)) return;
    const bool csa = kind_ == LayerKind::csa;
    const bool main = p >= (csa ? step.from.state_c4 : step.from.state_c128);
    const bool indexer = csa && p >= step.from.state_index;
    state_rows(*step.tables, step.request, step.state_base, p, true, true, main, indexer);
  }

  void state_rows(const BlockTables& tables, std::int32_t request, std::int32_t base, std::int32_t p,
                  bool main_required, bool index_required, bool main = true, bool indexer = true) {
    const bool csa = kind_ == LayerKind::csa;
    const bool ring =
        csa ? config_.cache.c4_state == C4State::ring : config_.cache.c128_state == C128State::ring;
    const int ring_rows = csa ? ring_rows_c4(config_.cache) : ring_rows_c128(config_.cache);
    const int page_rows = csa ? layout::kStatePageRowsC4 : layout::kStatePageRowsC128;
    const auto one = [&](Cache cache, bool required) {
      if (ring) {
        add(cache, std::int64_t{base} * ring_rows + p % ring_rows, request, p, required);
      } else {
        paged(cache, tables, request, p, page_rows, required);
      }
    };
    if (main) one(Cache::state, main_required);
    if (csa && indexer) one(Cache::index_state, index_required);
  }

  void entry(const RequestStep& step, std::int32_t j) {
    if (j < (kind_ == LayerKind::csa ? step.from.entries_c4 : step.from.entries_c128)) return;
    entry_rows(*step.tables, step.request, j, true);
  }

  void entry_rows(const BlockTables& tables, std::int32_t request, std::int32_t j, bool required) {
    const bool csa = kind_ == LayerKind::csa;
    paged(Cache::entries, tables, request, j, csa ? config_.cache.c4_page : config_.cache.c128_page,
          required);
    if (csa) paged(Cache::index_entries, tables, request, j, config_.cache.index_page, required);
  }

  const RunConfig& config_;
  LayerKind kind_;
  std::vector<PermittedWrite>& out_;
};

}  // namespace

std::vector<PermittedWrite> permitted_writes(const RunConfig& config, const StepPlan& plan, int layer) {
  std::vector<PermittedWrite> result;
  Collector collector(config, layer, result);
  for (const RequestStep& step : plan.requests) {
    if (!step.tables) {
      throw InternalError(fmt::format("step {}: request {} has no block tables", plan.index, step.request));
    }
    collector.request(step);
  }
  if (plan.fill) {
    for (const LiveRequest& live : plan.live) {
      if (live.request == plan.fill->request && live.tables) collector.fill(live);
    }
  }
  return result;
}

}  // namespace dsv4::compare
