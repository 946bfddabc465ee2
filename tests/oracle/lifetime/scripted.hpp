/// Steps, writes and lists of a lifetime check written by hand: plans without a planner, an engine without
/// numbers.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/error.hpp"
#include "oracle/lifetime/checker.hpp"

namespace dsv4::test {

using oracle::LifetimeChecker;
using oracle::PageLedger;

/// An engine that publishes what it is given and says what tables it has.
class ListEngine : public Engine {
 public:
  explicit ListEngine(const RunConfig& config) : Engine(config) {}

  EngineInfo info() const override { return {"lists", true, true, false, "cpu"}; }
  void begin_step(const StepPlan&) override {}
  void end_step(const StepPlan&) override {}
  const Tensor* tensor(int layer, TensorId id) const override {
    const auto found = tensors.find({layer, id});
    return found == tensors.end() ? nullptr : &found->second;
  }
  void set_tensor(int, TensorId, Tensor) override {}
  std::span<const Write> writes(int) const override { return {}; }
  void apply_writes(int, std::span<const Write>) override {}
  std::vector<std::byte> live_rows(int, Cache, std::span<const LiveRequest>) const override { return {}; }
  std::vector<std::byte> read_row(int, Cache, std::int64_t) const override { return {}; }
  void write_row(int, Cache, std::int64_t, std::span<const std::byte>) override {}

  std::map<std::pair<int, TensorId>, Tensor> tensors;
};

/// Window pages of 4 rows, entry pages of 2, six usable pages in every pool, two state bases, requests a, b
/// and c.
inline RunConfig small_run(LayerKind kind) {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named("canonical");
  config.layers = {kind};
  config.cache.swa_page = 4;
  config.cache.c4_page = 2;
  config.cache.index_page = 2;
  config.pool_pages.fill(7);
  config.state_bases = 3;
  config.requests = {"a", "b", "c"};
  return config;
}

/// Tables of a request: pages of the window, and the same ones for entries and index.
inline std::shared_ptr<const BlockTables> tables(std::vector<std::int32_t> window,
                                                 std::vector<std::int32_t> entries = {}) {
  auto made = std::make_shared<BlockTables>();
  (*made)[static_cast<std::size_t>(Pool::window)] = std::move(window);
  (*made)[static_cast<std::size_t>(Pool::entries_c4)] = entries;
  (*made)[static_cast<std::size_t>(Pool::index)] = std::move(entries);
  return made;
}

using Tables = std::shared_ptr<const BlockTables>;

/// A step in the making.
struct Step {
  StepPlan plan;

  explicit Step(std::int64_t index, std::string event = "{}") {
    plan.index = index;
    plan.event = std::move(event);
  }
  Step& allocate(Pool pool, std::int32_t page) {
    plan.allocated.push_back({pool, page});
    return *this;
  }
  Step& release(Pool pool, std::int32_t page) {
    plan.released.push_back({pool, page});
    return *this;
  }
  /// Rows begin .. end - 1, of which those below `committed` stay (-1: all). Content ids are position + 100 *
  /// life.
  Step& rows(std::int32_t request, std::int32_t begin, std::int32_t end, const Tables& held,
             std::int32_t committed = -1, std::uint64_t life = 1) {
    RequestStep step;
    step.request = request;
    step.first_row = static_cast<std::int32_t>(plan.rows.size());
    step.row_count = end - begin;
    step.begin = begin;
    step.end = end;
    step.committed = committed < 0 ? end : committed;
    step.verify = committed >= 0;
    step.state_base = request;
    step.tables = held;
    for (std::int32_t p = begin; p < end; ++p)
      plan.rows.push_back({request, p, static_cast<std::uint64_t>(p) + 100 * life + 1});
    plan.requests.push_back(std::move(step));
    return live(request, committed < 0 ? end : committed, held);
  }
  Step& live(std::int32_t request, std::int32_t length, const Tables& held) {
    plan.live.push_back({request, length, request, held});
    return *this;
  }
};

/// The ledger and the checker over some steps.
class Watch {
 public:
  explicit Watch(LayerKind kind)
      : config(small_run(kind)), engine(config), ledger(config), checker(config, ledger) {}

  /// A row as a stage wrote it.
  void wrote(Cache cache, std::int64_t slot, std::int32_t request, std::int32_t index) {
    writes.push_back({oracle::writer_of(cache), cache, slot, request, index, {}});
  }
  /// A window list of the step: one row of slots for each batch row.
  void window(const std::vector<std::vector<std::int32_t>>& rows) {
    put(TensorId::window_slots, rows, kWindow);
  }
  void put(TensorId id, const std::vector<std::vector<std::int32_t>>& rows, std::int64_t width) {
    Tensor tensor(DType::int32, {static_cast<std::int64_t>(rows.size()), width});
    auto out = tensor.as<std::int32_t>();
    std::fill(out.begin(), out.end(), -1);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (std::size_t item = 0; item < rows[row].size(); ++item)
        out[row * static_cast<std::size_t>(width) + item] = rows[row][item];
    }
    engine.tensors[{0, id}] = std::move(tensor);
  }

  /// Runs a step with the writes and lists said before, and forgets them.
  std::vector<compare::Finding> run(const Step& step) {
    ledger.begin(step.plan);
    checker.begin(step.plan);
    checker.layer(engine, step.plan, 0, writes);
    ledger.end(step.plan);
    std::vector<compare::Finding> findings = checker.end(step.plan);
    writes.clear();
    engine.tensors.clear();
    return findings;
  }

  RunConfig config;
  ListEngine engine;
  PageLedger ledger;
  LifetimeChecker checker;
  std::vector<Write> writes;
};

inline std::vector<std::string> kinds(const std::vector<compare::Finding>& findings) {
  std::vector<std::string> all;
  for (const compare::Finding& finding : findings) all.push_back(finding.kind);
  return all;
}

}  // namespace dsv4::test
