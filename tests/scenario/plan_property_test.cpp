// Random scripts: the plans are audited from outside, with a ledger of pages and of what each token was.
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "scenario/memory.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

using PageKey = std::pair<Pool, std::int32_t>;

/// Writes a script event by event, so that every event is possible.
class ScriptMaker {
 public:
  std::string make(const std::vector<int>& choices) {
    text_ = "steps:\n";
    for (const int choice : choices) event(choice);
    if (choices.empty()) text_ += "  - batch: [{pad: 1}]\n";
    return text_;
  }

 private:
  void add(const std::string& event) { text_ += "  - " + event + "\n"; }

  void event(int choice) {
    const int kind = choice % 13;
    const int amount = choice / 13 % 150 + 1;
    const std::string fresh = fmt::format("r{}", next_);
    if (live_.empty() || kind == 0) {
      add(fmt::format("prefill: {{request: {}, tokens: {}}}", fresh, amount));
      live_[fresh] = amount;
      ++next_;
      return;
    }
    auto entry = live_.begin();
    std::advance(entry, choice % static_cast<int>(live_.size()));
    const std::string name = entry->first;
    int& length = entry->second;
    if (kind <= 2) {
      add(fmt::format("decode: {{requests: [{}], repeat: {}}}", name, amount % 9 + 1));
      length += amount % 9 + 1;
    } else if (kind == 3) {
      add(fmt::format("prefill: {{request: {}, tokens: {}}}", name, amount));
      length += amount;
    } else if (kind <= 5) {
      const int rows = amount % 8 + 1;
      const int accept = amount / 8 % (rows + 1);
      add(fmt::format("verify: {{request: {}, rows: {}, accept: {}}}", name, rows, accept));
      length += accept;
    } else if (kind == 6) {
      length = amount % (length + 1);
      add(fmt::format("rewind: {{request: {}, to: {}}}", name, length));
    } else if (kind == 7) {
      add("free: " + name);
      live_.erase(entry);
    } else if (kind == 8) {
      add("preempt: " + name);
      add(fmt::format("batch: [{{prefill: {{request: {}, tokens: 5}}}}, {{pad: 2}}]", fresh));
      live_[fresh] = 5;
      ++next_;
      add(fmt::format("resume: {{request: {}, chunk: {}}}", name, amount));
    } else if (kind == 9 && length >= 128) {
      add(fmt::format("prefix_hit: {{request: {}, from: {}, tokens: {}}}", fresh, name, length / 128 * 128));
      live_[fresh] = length / 128 * 128;
      ++next_;
    } else if (kind == 10) {
      add(fmt::format("evict: {{request: {}, what: window}}", name));
    } else if (kind == 11) {
      add(fmt::format("save: {{request: {}, as: s{}}}", name, next_));
      add(fmt::format("load: {{request: {}, from: s{}}}", fresh, next_));
      live_[fresh] = length;
      ++next_;
    } else if (kind == 12 && length >= 128) {
      add(fmt::format("free: {{request: {}, keep: true}}", name));
      add(fmt::format("prefix_hit: {{request: {}, from: {}, tokens: 128}}", fresh, name));
      add("free: " + name);
      live_.erase(entry);
      live_[fresh] = 128;
      ++next_;
    }
  }

  std::string text_;
  std::map<std::string, int> live_;  ///< lengths
  int next_ = 0;
};

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
    for (const PageCopy& copy : step.copies) {
      RC_ASSERT(held_.contains({copy.pool, copy.from}));
      RC_ASSERT(held_.contains({copy.pool, copy.to}));
      RC_ASSERT(copy.rows > 0 && copy.rows < page_rows(config_.cache, copy.pool));
    }
    for (const RequestStep& share : step.requests) rows(step, share);
    for (const PageRef& page : step.released) RC_ASSERT(held_.erase({page.pool, page.page}) == 1U);
    std::map<PageKey, std::int32_t> holder;
    std::set<std::int32_t> bases;
    for (const LiveRequest& live : step.live) {
      RC_ASSERT(bases.insert(live.state_base).second);
      RC_ASSERT(live.state_base < config_.state_bases);
      tables(step, live, holder);
    }
    before_ = step.live;
  }

  std::size_t held() const { return held_.size(); }

 private:
  /// Every row has its page; nothing that is written lies in a page of somebody else.
  void rows(const StepPlan& step, const RequestStep& share) {
    const auto written = [&](Pool pool, std::int32_t first, std::int32_t end) {
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
      if (config_.pool_pages[static_cast<std::size_t>(pool)] == 0) return;
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
        if (old != discarded_[share.request].end()) RC_ASSERT(!old->second.contains(row.content));
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

  const RunConfig& config_;
  std::set<PageKey> held_;
  std::vector<LiveRequest> before_;
  std::map<std::int32_t, std::map<std::int32_t, std::uint64_t>> tokens_;
  std::map<std::int32_t, std::map<std::int32_t, std::set<std::uint64_t>>> discarded_;
};

TEST_CASE("plans of random scripts keep the ledger") {
  const bool holds = rc::check("plans", [] {
    const auto choices = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1 << 20));
    const auto pick = [](std::initializer_list<const char*> words) {
      return std::string(*rc::gen::elementOf(std::vector<const char*>(words)));
    };
    const std::string cache = fmt::format(
        "cache: {{draft: 8, c4_state: {}, c128_state: {}, allocate: {}, swa_release: {}, swa_page: {}, "
        "c4_page: {}}}\n",
        pick({"ring", "paged", "page4align"}), pick({"ring", "paged", "online"}),
        pick({"sequential", "shuffled", "lifo"}), pick({"eager", "never"}), pick({"1", "16", "64"}),
        pick({"3", "8", "64"}));
    const std::string script = cache + ScriptMaker().make(choices);
    RC_LOG() << script;
    const RunPlan run = test::planned(script);
    Audit audit(run.config);
    for (const StepPlan& step : run.steps) audit.step(step);
    RC_ASSERT(static_cast<std::int64_t>(audit.held()) == step_table(run).back().pages);
  });
  CHECK(holds);
}

}  // namespace
}  // namespace dsv4::scenario
