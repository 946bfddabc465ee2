#include "compare/write_set.hpp"

#include <algorithm>
#include <cstring>

#include "model/layout.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

// Memory as plain bytes, written by the test itself.
class MemoryEngine : public Engine {
 public:
  explicit MemoryEngine(const RunConfig& run) : Engine(run) {
    for (std::size_t layer = 0; layer < run.layers.size(); ++layer) {
      auto& caches = memory_.emplace_back();
      for (std::size_t i = 0; i < kCacheCount; ++i) {
        const auto cache = static_cast<Cache>(i);
        if (!has_cache(run.layers[layer], cache)) continue;
        caches[i].assign(static_cast<std::size_t>(units(run.layers[layer], cache)),
                         std::vector<std::byte>(unit_bytes(run.layers[layer], cache), std::byte{0xFF}));
      }
    }
    lists_.resize(run.layers.size());
  }

  EngineInfo info() const override { return {"memory", true, true, false, "cpu"}; }
  void begin_step(const StepPlan&) override {
    for (auto& list : lists_) list.clear();
  }
  void end_step(const StepPlan&) override {}
  const Tensor* tensor(int, TensorId) const override { return nullptr; }
  void set_tensor(int, TensorId, Tensor) override {}
  std::span<const Write> writes(int layer) const override { return lists_[static_cast<std::size_t>(layer)]; }
  void apply_writes(int, std::span<const Write>) override {}
  std::vector<std::byte> live_rows(int, Cache, std::span<const LiveRequest>) const override { return {}; }
  std::vector<std::byte> read_row(int layer, Cache cache, std::int64_t row) const override {
    return memory_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(cache)]
                  [static_cast<std::size_t>(row)];
  }
  void write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) override {
    unit(layer, cache, row).assign(bytes.begin(), bytes.end());
  }

  std::vector<std::byte>& unit(int layer, Cache cache, std::int64_t row) {
    return memory_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(cache)]
                  [static_cast<std::size_t>(row)];
  }

  // Puts a row of one byte value where its slot is, and notes the write.
  void store(int layer, Stage stage, Cache cache, std::int64_t slot, std::int32_t request, std::int32_t index,
             std::uint8_t value, bool note = true) {
    const LayerKind kind = config().layers[static_cast<std::size_t>(layer)];
    const std::int64_t rows = unit_rows(kind, cache);
    std::vector<std::byte>& bytes = unit(layer, cache, slot / rows);
    const std::int64_t row = slot % rows;
    std::size_t size = bytes.size() / static_cast<std::size_t>(rows);
    if (cache == Cache::window || cache == Cache::entries) {
      size = 584;
      std::memset(bytes.data() + row * 576, value, 576);
      std::memset(bytes.data() + rows * 576 + row * 8, value, 8);
    } else if (cache == Cache::index_entries) {
      size = 132;
      std::memset(bytes.data() + row * 128, value, 128);
      std::memset(bytes.data() + rows * 128 + row * 4, value, 4);
    } else {
      std::memset(bytes.data() + static_cast<std::size_t>(row) * size, value, size);
    }
    if (!note) return;
    lists_[static_cast<std::size_t>(layer)].push_back(
        {stage, cache, slot, request, index, std::vector<std::byte>(size, std::byte{value})});
  }

 private:
  bool paged_state(LayerKind kind) const {
    return kind == LayerKind::csa ? config().cache.c4_state != C4State::ring
                                  : config().cache.c128_state == C128State::paged;
  }
  std::int64_t unit_rows(LayerKind kind, Cache cache) const {
    if (cache == Cache::window) return config().cache.swa_page;
    if (cache == Cache::entries)
      return kind == LayerKind::csa ? config().cache.c4_page : config().cache.c128_page;
    if (cache == Cache::index_entries) return config().cache.index_page;
    if (!paged_state(kind)) return 1;
    return kind == LayerKind::csa ? 4 : 8;
  }
  std::int64_t units(LayerKind kind, Cache cache) const {
    const bool state = cache == Cache::state || cache == Cache::index_state;
    if (!state || paged_state(kind))
      return config().pool_pages[static_cast<std::size_t>(pool_of(kind, cache))];
    const std::int64_t rows = kind == LayerKind::csa ? ring_rows_c4(config().cache)
                              : config().cache.c128_state == C128State::online
                                  ? online_banks(config().cache)
                                  : ring_rows_c128(config().cache);
    return config().state_bases * rows;
  }
  std::size_t unit_bytes(LayerKind kind, Cache cache) const {
    const auto rows = static_cast<std::size_t>(unit_rows(kind, cache));
    if (cache == Cache::window || cache == Cache::entries) {
      return static_cast<std::size_t>(layout::kv_page_bytes(static_cast<int>(rows)));
    }
    if (cache == Cache::index_entries) return rows * 132;
    return rows * 64;
  }

  std::vector<std::array<std::vector<std::vector<std::byte>>, kCacheCount>> memory_;
  std::vector<std::vector<Write>> lists_;
};

RunConfig config_of(std::vector<LayerKind> layers) {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.layers = std::move(layers);
  config.pool_pages.fill(6);
  config.state_bases = 2;
  config.requests = {"a", "b"};
  return config;
}

// Request b, positions begin .. end, on pages 2, 3, 4 of every pool, state base 1.
StepPlan plan_of(std::int32_t begin, std::int32_t end, bool verify = false, std::int32_t committed = -1) {
  auto tables = std::make_shared<BlockTables>();
  for (auto& table : *tables) table = {2, 3, 4};
  // State pages of four rows cover few positions: start the table high enough.
  for (const Pool pool : {Pool::state_c4, Pool::state_index}) {
    (*tables)[static_cast<std::size_t>(pool)].assign(64, -1);
    (*tables)[static_cast<std::size_t>(pool)][1] = 2;
    (*tables)[static_cast<std::size_t>(pool)][2] = 3;
  }
  StepPlan plan;
  plan.index = 5;
  RequestStep step;
  step.request = 1;
  step.row_count = end - begin;
  step.begin = begin;
  step.end = end;
  step.committed = committed < 0 ? end : committed;
  step.verify = verify;
  step.state_base = 1;
  step.tables = tables;
  for (std::int32_t p = begin; p < end; ++p) plan.rows.push_back({1, p, 0});
  plan.requests.push_back(step);
  plan.live.push_back({1, step.committed, 1, tables});
  return plan;
}

// Does what a correct engine does: every permitted write.
void obey(MemoryEngine& engine, const StepPlan& plan) {
  engine.begin_step(plan);
  for (int layer = 0; layer < static_cast<int>(engine.config().layers.size()); ++layer) {
    for (const PermittedWrite& row : permitted_writes(engine.config(), plan, layer)) {
      engine.store(layer, Stage::kv_window, row.cache, row.slot, row.request, row.index,
                   static_cast<std::uint8_t>(row.index + 1));
    }
  }
}

using Rows = std::vector<std::tuple<Cache, std::int64_t, std::int32_t, bool>>;

Rows rows_of(const RunConfig& config, const StepPlan& plan) {
  Rows rows;
  for (const PermittedWrite& row : permitted_writes(config, plan, 0)) {
    REQUIRE(row.request == 1);
    rows.emplace_back(row.cache, row.slot, row.index, row.required);
  }
  std::ranges::sort(rows);
  return rows;
}

std::vector<std::string> kinds(const std::vector<Finding>& findings) {
  std::vector<std::string> result;
  for (const Finding& finding : findings) result.push_back(finding.kind);
  return result;
}

}  // namespace

TEST_CASE("permitted writes of a CSA step, by hand") {
  RunConfig config = config_of({LayerKind::csa});
  // Positions 8..11 close entry 2. Live C4 rows at length 12: 8..11. Pages 2: slots from 128; base 1:
  // ring 8..15.
  const StepPlan plan = plan_of(8, 12);
  Rows expected;
  for (const std::int32_t p : {8, 9, 10, 11}) expected.emplace_back(Cache::window, 128 + p, p, true);
  expected.emplace_back(Cache::entries, 128 + 2, 2, true);
  expected.emplace_back(Cache::index_entries, 128 + 2, 2, true);
  for (const std::int32_t p : {8, 9, 10, 11}) expected.emplace_back(Cache::state, 8 + p % 8, p, true);
  for (const std::int32_t p : {8, 9, 10, 11}) expected.emplace_back(Cache::index_state, 8 + p % 8, p, true);
  REQUIRE(rows_of(config, plan) == expected);

  config.cache.c4_state = C4State::paged;  // groups 1 and 2 on pages 2 and 3
  for (auto& row : expected) {
    if (std::get<0>(row) == Cache::state || std::get<0>(row) == Cache::index_state) {
      std::get<1>(row) = 3 * 4 + std::get<2>(row) % 4;
    }
  }
  REQUIRE(rows_of(config, plan) == expected);
}

TEST_CASE("permitted writes: long chunks, verify steps, restore steps, online state") {
  RunConfig config = config_of({LayerKind::hca});
  // 150 tokens: window rows before 150 - 127 = 23 may be written and need not be; entry 0; state from 128 on.
  Rows rows = rows_of(config, plan_of(0, 150));
  REQUIRE(std::ranges::count_if(rows, [](const auto& r) { return std::get<0>(r) == Cache::window; }) == 150);
  REQUIRE(std::ranges::count_if(
              rows, [](const auto& r) { return std::get<0>(r) == Cache::window && std::get<3>(r); }) == 127);
  REQUIRE(std::ranges::count(rows, std::tuple(Cache::entries, std::int64_t{2 * 2 + 0}, 0, true)) == 1);
  REQUIRE(std::ranges::count_if(rows, [](const auto& r) { return std::get<0>(r) == Cache::state; }) == 22);
  REQUIRE(std::ranges::count(rows, std::tuple(Cache::state, std::int64_t{128 + 0}, 128, true)) == 1);

  // A verify step across position 128, all rejected: every row is written all the same.
  config.cache.draft_rows = 4;
  rows = rows_of(config, plan_of(126, 130, true, 126));
  REQUIRE(std::ranges::count_if(rows, [](const auto& r) { return std::get<0>(r) == Cache::state; }) == 4);
  REQUIRE(std::ranges::count(rows, std::tuple(Cache::state, std::int64_t{256 + 127}, 127, true)) == 1);
  REQUIRE(std::ranges::count_if(rows, [](const auto& r) { return std::get<0>(r) == Cache::entries; }) == 1);

  // Online: a bank a row while verifying, else the committed bank once.
  config.cache.c128_state = C128State::online;
  rows = rows_of(config, plan_of(126, 130, true, 126));
  REQUIRE(std::ranges::count(rows, std::tuple(Cache::state, std::int64_t{1 * 5 + 1 + 2}, 128, true)) == 1);
  rows = rows_of(config, plan_of(126, 130));
  REQUIRE(std::ranges::count_if(rows, [](const auto& r) { return std::get<0>(r) == Cache::state; }) == 1);
  REQUIRE(std::ranges::count(rows, std::tuple(Cache::state, std::int64_t{5}, 129, true)) == 1);

  // A restore step leaves alone what is still there.
  config = config_of({LayerKind::csa});
  StepPlan plan = plan_of(4, 12);
  plan.kind = StepKind::restore;
  plan.requests[0].from.window = 10;
  plan.requests[0].from.state_c4 = 9;
  plan.requests[0].from.state_index = 11;
  plan.requests[0].from.entries_c4 = 2;
  rows = rows_of(config, plan);
  const auto count = [&rows](Cache cache) {
    return std::ranges::count_if(rows, [cache](const auto& r) { return std::get<0>(r) == cache; });
  };
  REQUIRE(count(Cache::window) == 2);
  REQUIRE(count(Cache::state) == 3);
  REQUIRE(count(Cache::index_state) == 1);
  REQUIRE(count(Cache::entries) == 1);
}

TEST_CASE("an engine that does what the plan says gives no finding") {
  for (const C4State state : {C4State::ring, C4State::paged}) {
    RunConfig config = config_of({LayerKind::swa, LayerKind::csa, LayerKind::hca});
    config.cache.c4_state = state;
    MemoryEngine engine(config);
    WriteSetChecker checker(config);
    for (const StepPlan& plan : {plan_of(4, 8), plan_of(8, 11), plan_of(11, 12)}) {
      checker.before(engine);
      obey(engine, plan);
      const std::vector<Finding> findings = checker.after(engine, plan);
      REQUIRE(kinds(findings).empty());
    }
  }
}

TEST_CASE("faults in writing are found with cache, page, offset and owner") {
  const RunConfig config = config_of({LayerKind::csa});
  MemoryEngine engine(config);
  WriteSetChecker checker(config);
  const StepPlan first = plan_of(4, 8);
  checker.before(engine);
  obey(engine, first);
  REQUIRE(checker.after(engine, first).empty());
  const StepPlan plan = plan_of(8, 12);
  checker.before(engine);
  obey(engine, plan);

  SECTION("a neighbour's row") {
    engine.unit(0, Cache::window, 2)[5 * 576 + 17] ^= std::byte{1};
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"changed_without_write"});
    REQUIRE(findings[0].cache == Cache::window);
    REQUIRE(findings[0].page == 2);
    REQUIRE(findings[0].offset == 5);
    REQUIRE(findings[0].byte == 5 * 576 + 17);
    REQUIRE(findings[0].owner == "b position 5");
    REQUIRE(findings[0].step == 5);
  }
  SECTION("a scale of another row, behind the values of the page") {
    engine.unit(0, Cache::entries, 2)[64 * 576 + 1 * 8 + 3] ^= std::byte{1};
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"changed_without_write"});
    REQUIRE(findings[0].offset == 1);
    REQUIRE(findings[0].owner == "b entry 1");
  }
  SECTION("the padding of a page and a page of nobody") {
    std::vector<std::byte>& page = engine.unit(0, Cache::window, 3);
    page.back() = std::byte{0};
    engine.unit(0, Cache::entries, 5)[0] = std::byte{0};
    const auto findings = checker.after(engine, plan);
    REQUIRE(findings.size() == 2);
    REQUIRE_FALSE(findings[0].offset.has_value());
    REQUIRE(findings[1].owner == "nobody");
  }
  SECTION("the null page, even by a noted write") {
    engine.store(0, Stage::kv_window, Cache::window, 3, 1, 8, 0x11);
    const auto found = kinds(checker.after(engine, plan));
    REQUIRE(std::ranges::count(found, "null_page") == 1);
    REQUIRE(std::ranges::count(found, "write_outside_plan") == 1);
  }
  SECTION("a write to the right slot for the wrong token") {
    engine.store(0, Stage::kv_window, Cache::window, 128 + 9, 1, 10, 0x11);
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"write_outside_plan"});
    REQUIRE(findings[0].message.find("where the plan expects b position 9") != std::string::npos);
  }
  SECTION("a write that is noted but did not happen") {
    engine.store(0, Stage::compress_state, Cache::state, 8 + 3, 1, 11, 0x55, true);
    engine.unit(0, Cache::state, 8 + 3)[0] ^= std::byte{0xFF};
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"memory_differs_from_write"});
    REQUIRE(findings[0].owner == "b row 3 of its state");
  }
  SECTION("a state row of another request") {
    engine.unit(0, Cache::index_state, 2)[7] = std::byte{1};
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"changed_without_write"});
    REQUIRE(findings[0].page == 2);
    REQUIRE(findings[0].owner == "nobody");
  }
}

TEST_CASE("only online state has a committed bank, which a verify step makes equal to that of its accepted row") {
  RunConfig config = config_of({LayerKind::csa, LayerKind::hca});
  config.cache.draft_rows = 4;
  config.cache.c128_state = C128State::online;
  const StepPlan plan = plan_of(5, 9, true, 6);
  for (const int layer : {0, 1}) {
    MemoryEngine engine(config);
    WriteSetChecker checker(config);
    checker.before(engine);
    obey(engine, plan);
    const std::int64_t banks = online_banks(config.cache);
    engine.unit(1, Cache::state, 1 * banks) = engine.unit(1, Cache::state, 1 * banks + 1);  // one row of four is accepted
    const std::int64_t rows = layer == 0 ? ring_rows_c4(config.cache) : banks;
    engine.unit(layer, Cache::state, 1 * rows)[0] ^= std::byte{1};
    const std::string expected = layer == 0 ? "changed_without_write" : "memory_differs_from_write";
    REQUIRE(kinds(checker.after(engine, plan)) == std::vector<std::string>{expected});
  }
}

TEST_CASE("a restore step may write a window row again that it could keep, with the bytes that it holds") {
  const RunConfig config = config_of({LayerKind::csa});
  MemoryEngine engine(config);
  WriteSetChecker checker(config);
  checker.before(engine);
  obey(engine, plan_of(4, 12));
  REQUIRE(checker.after(engine, plan_of(4, 12)).empty());
  StepPlan plan = plan_of(8, 12);
  plan.kind = StepKind::restore;
  plan.requests[0].from.window = 10;
  checker.before(engine);
  obey(engine, plan);

  SECTION("the same bytes") {
    engine.store(0, Stage::kv_window, Cache::window, 128 + 9, 1, 9, 9 + 1);
    REQUIRE(checker.after(engine, plan).empty());
  }
  SECTION("other bytes") {
    engine.store(0, Stage::kv_window, Cache::window, 128 + 9, 1, 9, 0x55);
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"changed_without_write"});
    REQUIRE(findings[0].owner == "b position 9");
  }
  SECTION("another slot, or a row before the step's first") {
    engine.store(0, Stage::kv_window, Cache::window, 128 + 20, 1, 9, 9 + 1);
    engine.store(0, Stage::kv_window, Cache::window, 128 + 7, 1, 7, 7 + 1);
    const auto found = kinds(checker.after(engine, plan));
    REQUIRE(std::ranges::count(found, "write_outside_plan") == 2);
  }
}

TEST_CASE("a row that was replaced from outside must hold the replacement") {
  const RunConfig config = config_of({LayerKind::csa});
  MemoryEngine engine(config);
  WriteSetChecker checker(config);
  const StepPlan plan = plan_of(8, 9);
  const auto bytes = [&](std::uint8_t fill) { return std::vector<std::byte>(584, std::byte{fill}); };
  checker.before(engine);
  obey(engine, plan);
  const std::int64_t slot = 128 + 8;
  const std::vector<Write> rows{{Stage::kv_window, Cache::window, slot, 1, 8, bytes(0x22)}};
  checker.replaced(0, rows);
  SECTION("it does not") {
    const auto findings = checker.after(engine, plan);
    REQUIRE(kinds(findings) == std::vector<std::string>{"memory_differs_from_write"});
    REQUIRE(findings[0].owner == "b position 8");
  }
  SECTION("it does") {
    std::vector<std::byte>& page = engine.unit(0, Cache::window, 2);
    std::fill_n(page.begin() + 8 * 576, 576, std::byte{0x22});
    std::fill_n(page.begin() + 64 * 576 + 8 * 8, 8, std::byte{0x22});
    REQUIRE(checker.after(engine, plan).empty());
    checker.before(engine);  // forgets the replacement
    obey(engine, plan);
    REQUIRE(checker.after(engine, plan).empty());
  }
}

TEST_CASE("a missing write is a finding") {
  const RunConfig config = config_of({LayerKind::csa});
  MemoryEngine engine(config);
  WriteSetChecker checker(config);
  const StepPlan plan = plan_of(8, 9);
  checker.before(engine);
  engine.begin_step(plan);
  engine.store(0, Stage::kv_window, Cache::window, 128 + 8, 1, 8, 1);
  engine.store(0, Stage::compress_state, Cache::state, 8, 1, 8, 1);
  const auto findings = checker.after(engine, plan);
  REQUIRE(kinds(findings) == std::vector<std::string>{"write_missing"});
  REQUIRE(findings[0].cache == Cache::index_state);
}

TEST_CASE("copies, poison and released pages may change, other pages may not") {
  RunConfig config = config_of({LayerKind::swa});
  MemoryEngine engine(config);
  WriteSetChecker checker(config);
  StepPlan plan;
  plan.kind = StepKind::lifecycle;
  plan.copies = {{Pool::window, 2, 3, 10}};
  plan.released = {{Pool::window, 4}};
  plan.poison = Poison{{{Pool::window, 5}}, {}, 0x00};
  for (auto& byte : engine.unit(0, Cache::window, 2)) byte = std::byte{7};
  engine.unit(0, Cache::window, 4)[100] = std::byte{7};

  checker.before(engine);
  std::memset(engine.unit(0, Cache::window, 3).data(), 7, 10 * 576);
  for (auto& byte : engine.unit(0, Cache::window, 5)) byte = std::byte{0};
  REQUIRE(checker.after(engine, plan).empty());

  checker.before(engine);
  engine.unit(0, Cache::window, 3)[10 * 576] = std::byte{9};  // row 10 was not copied
  engine.unit(0, Cache::window, 4)[100] = std::byte{0xFF};    // released, but freed pages are not poisoned
  REQUIRE(checker.after(engine, plan).size() == 2);

  config.cache.poison_freed = true;
  checker.before(engine);
  engine.unit(0, Cache::window, 4)[200] = std::byte{0};
  REQUIRE(checker.after(engine, plan).empty());
}

}  // namespace dsv4::compare
