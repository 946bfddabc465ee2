#include "oracle/recorded/plan_digest.hpp"

#include <fmt/format.h>

#include <iterator>

#include "arith/bits.hpp"
#include "model/digest.hpp"
#include "model/error.hpp"

namespace dsv4::oracle::recorded {
namespace {

/// The plan as text, one fact after another.
class PlanText {
 public:
  explicit PlanText(const RunPlan& plan) {
    add_config(plan.config);
    for (const StepPlan& step : plan.steps) add_step(step);
  }
  const std::string& text() const { return text_; }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }

  void add_config(const RunConfig& config) {
    const Geometry& g = config.geometry;
    add("geometry {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", g.dim, g.q_lora, g.heads, g.o_groups,
        g.o_lora, g.index_heads, g.index_topk, g.eps, g.rope_theta, g.compress_rope_theta, g.yarn_factor,
        g.yarn_original, g.beta_fast, g.beta_slow);
    add("exact {}\n", config.profile.exact);
    for (const AxisInfo& axis : axes()) add("{} {}\n", axis.name, config.profile.value(axis.axis));
    for (const LayerKind kind : config.layers) add("layer {}\n", name(kind));
    const CacheConfig& c = config.cache;
    add("chain {} seed {} cache {} {} {} {} {} {} {} {} {} {} {} {}\n", config.chain, config.seed, c.swa_page,
        c.c4_page, c.c128_page, c.index_page, static_cast<int>(c.c4_state), static_cast<int>(c.c128_state),
        c.draft_rows, static_cast<int>(c.allocate), static_cast<int>(c.swa_release), c.poison_freed,
        c.pool_pages.value_or(-1), c.pitch.value_or(-1));
    if (c.first_page) add("first page {}\n", *c.first_page);
    for (const SeedEdit& edit : config.seed_edits) {
      add("edit {} {} value {} scale {} rows", edit.tensor, edit.layer.value_or(-1),
          edit.value ? arith::to_bits(*edit.value) : 0, edit.value ? 0 : edit.scale);
      for (const std::int64_t row : edit.rows) add(" {}", row);
      add(" columns");
      for (const std::int64_t column : edit.columns) add(" {}", column);
      add("\n");
    }
    for (const std::int64_t pages : config.pool_pages) add("pool {}\n", pages);
    add("bases {}\n", config.state_bases);
    for (const std::string& request : config.requests) add("request {}\n", request);
  }

  void add_tables(const std::shared_ptr<const BlockTables>& tables) {
    if (!tables) return add("no tables\n");
    for (const std::vector<std::int32_t>& pages : *tables) {
      add("table");
      for (const std::int32_t page : pages) add(" {}", page);
      add("\n");
    }
  }

  void add_pages(const char* what, const std::vector<PageRef>& pages) {
    for (const PageRef& page : pages) add("{} {} {}\n", what, name(page.pool), page.page);
  }

  void add_request(const RequestStep& r) {
    add("takes part {} {} {} {} {} {} {} {} keep {} {} {} {} {} {}\n", r.request, r.first_row, r.row_count,
        r.begin, r.end, r.committed, r.verify, r.state_base, r.from.window, r.from.state_c4,
        r.from.state_index, r.from.state_c128, r.from.entries_c4, r.from.entries_c128);
    add_tables(r.tables);
  }

  void add_step(const StepPlan& step) {
    add("step {} kind {} {}\n", step.index, static_cast<int>(step.kind), step.event);
    for (const Row& row : step.rows) add("row {} {} {}\n", row.request, row.position, row.content);
    for (const RequestStep& request : step.requests) add_request(request);
    add_pages("allocated", step.allocated);
    for (const PageCopy& copy : step.copies)
      add("copy {} {} {} {}\n", name(copy.pool), copy.from, copy.to, copy.rows);
    add_pages("released", step.released);
    for (const std::int32_t base : step.released_bases) add("released base {}\n", base);
    for (const PrefixHit& hit : step.prefix) add("prefix {} {} {}\n", hit.request, hit.source, hit.tokens);
    if (step.poison) {
      add("poison {}\n", step.poison->value);
      add_pages("poisoned", step.poison->pages);
      for (const std::int32_t base : step.poison->state_bases) add("poisoned base {}\n", base);
    }
    if (step.fill) add("fill {} {}\n", step.fill->request, step.fill->tokens);
    for (const LiveRequest& live : step.live) {
      add("live {} {} {}\n", live.request, live.length, live.state_base);
      add_tables(live.tables);
    }
  }

  std::string text_;
};

}  // namespace

std::string plan_digest(const RunPlan& plan) {
  const PlanText text(plan);
  return digest(std::as_bytes(std::span<const char>(text.text())));
}

}  // namespace dsv4::oracle::recorded
