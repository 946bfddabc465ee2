// Random scenarios of the fuzzer's grammar: their plans are audited from outside, with a ledger of pages, of
// the rows of state rings and of what each token was.
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "scenario/memory.hpp"
#include "scenario/random_scenario.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

using PageKey = std::pair<Pool, std::int32_t>;

/// Follows a plan and asserts what must hold after each step.
class Audit {
 public:
  explicit Audit(const RunConfig& config) : config_(config) {}

  void step(const StepPlan& step) {
    for (const PageRef& page : step.allocated) {
      RC_ASSERT(page.page > 0);
      RC_ASSERT(page.page < config_.pool_pages[static_cast<std::size_t>(page.pool)]);
      RC_ASSERT(held_.insert({page.pool, page.page}).second);
    }
    for (const PrefixHit& hit : step.prefix) hits_.insert(hit.request);
    if (step.fill) filled_.insert(step.fill->request);
    for (const PageCopy& copy : step.copies) {
      RC_ASSERT(held_.contains({copy.pool, copy.from}));
      RC_ASSERT(held_.contains({copy.pool, copy.to}));
      RC_ASSERT(copy.rows > 0 && copy.rows < page_rows(config_.cache, copy.pool));
    }
    for (const RequestStep& share : step.requests) {
      rows(step, share);
      write_rings(step, share);
    }
    for (const PageRef& page : step.released) RC_ASSERT(held_.erase({page.pool, page.page}) == 1U);
    std::map<PageKey, std::int32_t> holder;
    std::set<std::int32_t> bases;
    for (const LiveRequest& live : step.live) {
      RC_ASSERT(bases.insert(live.state_base).second);
      RC_ASSERT(live.state_base < config_.state_bases);
      tables(step, live, holder);
      live_rings(live);
    }
    before_ = step.live;
  }

  std::size_t held() const { return held_.size(); }

 private:
  /// Every row has its page; nothing that is written lies in a page of somebody else.
  void rows(const StepPlan& step, const RequestStep& share) {
    const auto written = [&](Pool pool, std::int32_t first, std::int32_t end) {
      if (config_.pool_pages[static_cast<std::size_t>(pool)] == 0) return;  // no layer of the run has it
      const int size = page_rows(config_.cache, pool);
      const auto& table = test::table(share, pool);
      for (std::int32_t row = first; row < end; ++row) {
        const auto item = static_cast<std::size_t>(row / size);
        RC_ASSERT(item < table.size());
        RC_ASSERT(table[item] > 0);
        for (const LiveRequest& other : before_) {
          if (other.request == share.request) continue;
          const auto& pages = test::table(other, pool);
          RC_ASSERT(std::ranges::count(pages, table[item]) == 0);
        }
      }
    };
    written(Pool::window, std::max(share.begin, share.from.window), share.end);
    written(Pool::entries_c4, std::max(share.begin / 4, share.from.entries_c4), share.end / 4);
    written(Pool::index, std::max(share.begin / 4, share.from.entries_c4), share.end / 4);
    written(Pool::entries_c128, std::max(share.begin / 128, share.from.entries_c128), share.end / 128);
    const auto state = [&](LayerKind kind, Pool pool, std::int32_t from) {
      const std::int32_t live = share.verify ? share.begin : first_live_state(kind, share.committed);
      written(pool, std::max({share.begin, from, live}), share.end);
    };
    state(LayerKind::csa, Pool::state_c4, share.from.state_c4);
    state(LayerKind::csa, Pool::state_index, share.from.state_index);
    state(LayerKind::hca, Pool::state_c128, share.from.state_c128);

    auto& tokens = tokens_[share.request];
    for (std::int32_t i = 0; i < share.row_count; ++i) {
      const Row& row = step.rows[static_cast<std::size_t>(share.first_row + i)];
      RC_ASSERT(row.position == share.begin + i);
      if (step.kind == StepKind::restore) {
        const auto known = tokens.find(row.position);
        if (known != tokens.end()) RC_ASSERT(known->second == row.content);
      } else {
        const auto old = discarded_[share.request].find(row.position);
        // A name that took a prefix of its own former tokens may meet one of them again.
        if (old != discarded_[share.request].end() && !hits_.contains(share.request))
          RC_ASSERT(!old->second.contains(row.content));
        if (row.position >= share.committed) discarded_[share.request][row.position].insert(row.content);
      }
      if (row.position < share.committed) tokens[row.position] = row.content;
    }
  }

  void tables(const StepPlan& step, const LiveRequest& live, std::map<PageKey, std::int32_t>& holder) {
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      for (const std::int32_t page : (*live.tables)[pool]) {
        if (page < 0) continue;
        const PageKey key{static_cast<Pool>(pool), page};
        RC_ASSERT(held_.contains(key));
        const auto [other, first] = holder.emplace(key, live.request);
        const bool sharable =
            key.first == Pool::entries_c4 || key.first == Pool::entries_c128 || key.first == Pool::index;
        RC_ASSERT(first || sharable);
      }
    }
    const auto present = [&](Pool pool, std::int32_t first, std::int32_t end) {
      if (config_.pool_pages[static_cast<std::size_t>(pool)] == 0) return;
      const auto& table = test::table(live, pool);
      for (std::int32_t row = first; row < end; ++row) {
        RC_ASSERT(table.at(static_cast<std::size_t>(row / page_rows(config_.cache, pool))) > 0);
      }
    };
    const std::int32_t n = live.length;
    const bool evicted = test::table(live, Pool::window).empty() && n > 0;
    if (evicted)
      RC_ASSERT(step.kind == StepKind::lifecycle || step.requests.empty() ||
                std::ranges::count(step.requests, live.request, &RequestStep::request) == 0);
    if (!evicted) present(Pool::window, first_live_window(n), n);
    present(Pool::entries_c4, 0, n / 4);
    present(Pool::index, 0, n / 4);
    present(Pool::entries_c128, 0, n / 128);
    present(Pool::state_c4, first_live_state(LayerKind::csa, n), n);
    present(Pool::state_index, first_live_state(LayerKind::csa, n), n);
    present(Pool::state_c128, first_live_state(LayerKind::hca, n), n);
    auto& tokens = tokens_[live.request];
    for (auto token = tokens.lower_bound(n); token != tokens.end(); token = tokens.erase(token)) {
      if (step.requests.empty() || step.kind == StepKind::restore) {
        discarded_[live.request][token->first].insert(token->second);
      }
    }
  }

  struct RingRow {
    std::int32_t request = -1;
    std::int32_t position = -1;
    std::uint64_t content = 0;
  };

  /// Rows of a layer kind's ring, or 0 where its state is none.
  int ring_rows(LayerKind kind) const {
    if (std::ranges::count(config_.layers, kind) == 0) return 0;
    if (kind == LayerKind::csa)
      return config_.cache.c4_state == C4State::ring ? ring_rows_c4(config_.cache) : 0;
    return config_.cache.c128_state == C128State::ring ? ring_rows_c128(config_.cache) : 0;
  }

  /// A step writes the state rows that are live after it, a verify step all of its rows.
  void write_rings(const StepPlan& step, const RequestStep& share) {
    for (const LayerKind kind : {LayerKind::csa, LayerKind::hca}) {
      const int size = ring_rows(kind);
      const std::int32_t kept = kind == LayerKind::csa ? share.from.state_c4 : share.from.state_c128;
      const std::int32_t live = share.verify ? share.begin : first_live_state(kind, share.committed);
      for (std::int32_t p = std::max({share.begin, kept, live}); size > 0 && p < share.end; ++p) {
        const Row& row = step.rows[static_cast<std::size_t>(share.first_row + p - share.begin)];
        rings_[{kind, share.state_base, p % size}] = {share.request, p, row.content};
      }
    }
  }

  /// Every live state row is still where it was written, with the token that holds its position now.
  void live_rings(const LiveRequest& live) {
    for (const LayerKind kind : {LayerKind::csa, LayerKind::hca}) {
      const int size = ring_rows(kind);
      if (filled_.contains(live.request)) continue;
      for (std::int32_t p = first_live_state(kind, live.length); size > 0 && p < live.length; ++p) {
        const RingRow& row = rings_[{kind, live.state_base, p % size}];
        RC_ASSERT(row.request == live.request);
        RC_ASSERT(row.position == p);
        RC_ASSERT(row.content == tokens_[live.request].at(p));
      }
    }
  }

  const RunConfig& config_;
  std::set<PageKey> held_;
  std::map<std::tuple<LayerKind, std::int32_t, std::int32_t>, RingRow> rings_;
  std::set<std::int32_t> hits_;    ///< requests that began with another's tokens
  std::set<std::int32_t> filled_;  ///< requests with synthetic rows, which no step writes
  std::vector<LiveRequest> before_;
  std::map<std::int32_t, std::map<std::int32_t, std::uint64_t>> tokens_;
  std::map<std::int32_t, std::map<std::int32_t, std::set<std::uint64_t>>> discarded_;
};

TEST_CASE("plans of random scenarios keep the ledger of pages, rings and tokens") {
  const bool holds = rc::check("plans", [] {
    const auto numbers = *rc::gen::container<std::vector<std::uint32_t>>(160, rc::gen::inRange(0U, 1U << 20));
    const Scenario scenario = random_scenario(Dice(numbers), "random", {.events = 30, .tokens = 900});
    RC_LOG() << scenario.text;
    const RunPlan run = plan(scenario);
    Audit audit(run.config);
    for (const StepPlan& step : run.steps) audit.step(step);
    RC_ASSERT(static_cast<std::int64_t>(audit.held()) == step_table(run).back().pages);
  });
  CHECK(holds);
}

}  // namespace
}  // namespace dsv4::scenario
