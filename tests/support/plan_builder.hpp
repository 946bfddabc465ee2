/// Step plans written by hand for engine tests: pages are handed out one after the other (or from the top, to
/// place rows elsewhere) and given back by the live-row rules alone (docs/numerics.md 12.3). Knows nothing of
/// scenarios.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "model/seeded.hpp"
#include "model/step_plan.hpp"

namespace dsv4::support {

/// How a request takes part in a step; request < 0: `rows` padding rows.
struct Part {
  int request = 0;
  int rows = 1;
  int accept = -1;  ///< >= 0: a verify step of which so many rows are committed
};

class PlanBuilder {
 public:
  explicit PlanBuilder(RunConfig base) : config(std::move(base)) {
    if (config.state_bases == 0) config.state_bases = 8;
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      if (config.pool_pages[pool] == 0) config.pool_pages[pool] = 200;
      for (std::int32_t page = 1; page < config.pool_pages[pool]; ++page) free_[pool].insert(page);
    }
    for (std::int32_t base_row = 0; base_row < config.state_bases; ++base_row) free_bases_.insert(base_row);
  }

  /// Pages come from the highest number down: other slots, same bits.
  bool from_top = false;
  RunConfig config;

  /// Admits a request; its name decides its content ids.
  int admit(const std::string& name) {
    config.requests.push_back(name);
    const int index = static_cast<int>(requests_.size());
    Request request;
    request.name = name;
    request.tables.fill({});
    request.base = from_top ? *free_bases_.rbegin() : *free_bases_.begin();
    free_bases_.erase(request.base);
    requests_.push_back(std::move(request));
    return index;
  }

  int length(int request) const { return requests_[request].length; }

  /// Content ids of a request's tokens by position, and their way into another run that shall compute the
  /// same ones.
  const std::vector<std::uint64_t>& contents(int request) const { return requests_[request].contents; }
  void adopt(int request, const std::vector<std::uint64_t>& contents) {
    requests_[request].contents = contents;
  }

  StepPlan step(const std::vector<Part>& parts) {
    StepPlan plan = next_plan(StepKind::compute);
    for (const Part& part : parts) {
      if (part.request < 0) {
        plan.rows.insert(plan.rows.end(), static_cast<std::size_t>(part.rows), Row{});
        continue;
      }
      const int begin = requests_[part.request].length;
      add_rows(plan, part.request, begin, begin + part.rows, part.accept);
    }
    commit(plan);
    return plan;
  }

  /// Recomputes positions begin .. end - 1; afterwards the request is `end` long.
  StepPlan restore(int request, int begin, int end, const KeepFrom& from = {}) {
    StepPlan plan = next_plan(StepKind::restore);
    add_rows(plan, request, begin, end, -1);
    plan.requests.back().from = from;
    commit(plan);
    return plan;
  }

  /// Drops every page of a request (preempt, free); its tokens keep their identity.
  StepPlan drop(int request) {
    StepPlan plan = next_plan(StepKind::lifecycle);
    Request& it = requests_[request];
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      for (std::int32_t& page : it.tables[pool]) release(plan, static_cast<Pool>(pool), page);
    }
    plan.released_bases.push_back(it.base);
    it.length = 0;
    it.live = false;
    finish(plan);
    return plan;
  }

  /// Cuts a request back without recomputing anything; its further tokens are new ones.
  StepPlan cut(int request, int to) {
    StepPlan plan = next_plan(StepKind::lifecycle);
    reject(requests_[request], to);
    requests_[request].length = to;
    give_back(plan, requests_[request]);
    finish(plan);
    return plan;
  }

  /// `to` continues after the first `tokens` tokens of `from`, whose entry pages it copies (no sharing here).
  StepPlan copy_prefix(int to, int from, int tokens) {
    StepPlan plan = next_plan(StepKind::lifecycle);
    Request& target = requests_[to];
    target.contents.assign(requests_[from].contents.begin(), requests_[from].contents.begin() + tokens);
    for (const Pool pool : {Pool::entries_c4, Pool::entries_c128, Pool::index}) {
      const int rows = page_rows(pool);
      const int entries = used(pool) ? tokens / (pool == Pool::entries_c128 ? 128 : 4) : 0;
      for (int item = 0; item * rows < entries; ++item) {
        hold(plan, target, pool, item);
        plan.copies.push_back({pool, requests_[from].tables[static_cast<std::size_t>(pool)][item],
                               target.tables[static_cast<std::size_t>(pool)][item],
                               std::min(rows, entries - item * rows)});
      }
    }
    target.length = tokens;
    finish(plan);
    return plan;
  }

 private:
  struct Request {
    std::string name;
    int length = 0;
    int generation = 0;
    std::int32_t base = 0;
    bool live = true;
    BlockTables tables;
    std::vector<std::uint64_t> contents;  ///< by position, as far as computed and not rejected
  };

  bool runs(LayerKind kind) const { return std::ranges::count(config.layers, kind) != 0; }
  bool used(Pool pool) const {
    switch (pool) {
      case Pool::window:
        return true;
      case Pool::entries_c4:
      case Pool::index:
        return runs(LayerKind::csa);
      case Pool::entries_c128:
        return runs(LayerKind::hca);
      case Pool::state_c4:
      case Pool::state_index:
        return runs(LayerKind::csa) && config.cache.c4_state != C4State::ring;
      case Pool::state_c128:
        return runs(LayerKind::hca) && config.cache.c128_state == C128State::paged;
    }
    return false;
  }
  int page_rows(Pool pool) const {
    switch (pool) {
      case Pool::window:
        return config.cache.swa_page;
      case Pool::entries_c4:
        return config.cache.c4_page;
      case Pool::entries_c128:
        return config.cache.c128_page;
      case Pool::index:
        return config.cache.index_page;
      case Pool::state_c4:
      case Pool::state_index:
        return layout::kStatePageRowsC4;
      case Pool::state_c128:
        return layout::kStatePageRowsC128;
    }
    return 1;
  }
  /// Rows of a pool that are live at length n: [first, last).
  static std::pair<int, int> live(Pool pool, int n) {
    switch (pool) {
      case Pool::window:
        return {std::max(0, n - 127), n};
      case Pool::entries_c4:
      case Pool::index:
        return {0, n / 4};
      case Pool::entries_c128:
        return {0, n / 128};
      case Pool::state_c4:
      case Pool::state_index:
        return {std::max(0, n / 4 * 4 - 4), n};
      case Pool::state_c128:
        return {n / 128 * 128, n};
    }
    return {0, 0};
  }

  StepPlan next_plan(StepKind kind) {
    StepPlan plan;
    plan.index = steps_++;
    plan.kind = kind;
    plan.event = "{}";
    return plan;
  }

  void hold(StepPlan& plan, Request& request, Pool pool, int item) {
    std::vector<std::int32_t>& table = request.tables[static_cast<std::size_t>(pool)];
    if (std::ssize(table) <= item) table.resize(static_cast<std::size_t>(item) + 1, -1);
    if (table[item] >= 0) return;
    std::set<std::int32_t>& pages = free_[static_cast<std::size_t>(pool)];
    if (pages.empty()) throw InternalError("the plan builder ran out of pages");
    table[item] = from_top ? *pages.rbegin() : *pages.begin();
    pages.erase(table[item]);
    plan.allocated.push_back({pool, table[item]});
  }
  void release(StepPlan& plan, Pool pool, std::int32_t& page) {
    if (page < 0) return;
    plan.released.push_back({pool, page});
    free_[static_cast<std::size_t>(pool)].insert(page);
    page = -1;
  }
  void give_back(StepPlan& plan, Request& request) {
    for (std::size_t index = 0; index < kPoolCount; ++index) {
      const auto pool = static_cast<Pool>(index);
      const auto [first, last] = live(pool, request.length);
      for (int item = 0; item < std::ssize(request.tables[index]); ++item) {
        const int begin = item * page_rows(pool);
        if (begin >= last || begin + page_rows(pool) <= first)
          release(plan, pool, request.tables[index][item]);
      }
    }
  }
  static void reject(Request& request, int from) {
    if (static_cast<int>(request.contents.size()) <= from) return;
    request.contents.resize(static_cast<std::size_t>(from));
    ++request.generation;
  }

  void add_rows(StepPlan& plan, int index, int begin, int end, int accept) {
    Request& request = requests_[index];
    request.live = true;
    for (std::size_t number = 0; number < kPoolCount; ++number) {
      const auto pool = static_cast<Pool>(number);
      if (!used(pool)) continue;
      const bool state = pool == Pool::state_c4 || pool == Pool::state_index || pool == Pool::state_c128;
      auto [first, last] = live(pool, end);
      if (pool == Pool::window || (state && accept >= 0)) first = begin;
      if (state) first = std::max(first, begin);
      for (int row = first; row < last; ++row) hold(plan, request, pool, row / page_rows(pool));
    }
    RequestStep part;
    part.request = index;
    part.first_row = static_cast<std::int32_t>(plan.rows.size());
    part.row_count = end - begin;
    part.begin = begin;
    part.end = end;
    part.committed = accept < 0 ? end : begin + accept;
    part.verify = accept >= 0;
    part.state_base = request.base;
    part.tables = std::make_shared<BlockTables>(request.tables);
    for (int position = begin; position < end; ++position) {
      if (static_cast<int>(request.contents.size()) <= position) {
        request.contents.push_back(content_id(request.name, position, request.generation));
      }
      plan.rows.push_back({index, position, request.contents[static_cast<std::size_t>(position)]});
    }
    plan.requests.push_back(part);
  }

  void commit(StepPlan& plan) {
    for (const RequestStep& part : plan.requests) {
      Request& request = requests_[part.request];
      request.length = part.committed;
      if (part.verify) reject(request, part.committed);
      give_back(plan, request);
    }
    finish(plan);
  }
  void finish(StepPlan& plan) const {
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      const Request& request = requests_[index];
      if (!request.live) continue;
      plan.live.push_back({static_cast<std::int32_t>(index), request.length, request.base,
                           std::make_shared<BlockTables>(request.tables)});
    }
  }

  std::vector<Request> requests_;
  std::array<std::set<std::int32_t>, kPoolCount> free_;
  std::set<std::int32_t> free_bases_;
  std::int64_t steps_ = 0;
};

}  // namespace dsv4::support
