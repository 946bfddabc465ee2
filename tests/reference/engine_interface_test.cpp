/// What drives, feeds and dumps an engine relies on: published tensors, writes with owners, memory by page,
/// refusals.
#include <algorithm>
#include <numeric>

#include "model/error.hpp"
#include "reference/engine_harness.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

struct Expected {
  Cache cache;
  std::int32_t request, index;
  std::int64_t slot;
  auto operator<=>(const Expected&) const = default;
};

std::vector<Expected> sorted_writes(Engine& engine, int layer) {
  std::vector<Expected> rows;
  for (const Write& write : engine.writes(layer))
    rows.push_back({write.cache, write.request, write.index, write.slot});
  std::ranges::sort(rows);
  return rows;
}

/// By literal loops over the tables of the plan: ratio 4, ring state of R rows.
std::vector<Expected> literal_csa_writes(const StepPlan& plan, int ring) {
  std::vector<Expected> rows;
  for (const RequestStep& part : plan.requests) {
    const BlockTables& tables = *part.tables;
    const auto paged = [&](Pool pool, int row) {
      return std::int64_t{tables[static_cast<std::size_t>(pool)].at(static_cast<std::size_t>(row / 64))} *
                 64 +
             row % 64;
    };
    for (int p = part.begin; p < part.end; ++p) {
      rows.push_back({Cache::window, part.request, p, paged(Pool::window, p)});
      if (p % 4 == 3) {
        rows.push_back({Cache::entries, part.request, p / 4, paged(Pool::entries_c4, p / 4)});
        rows.push_back({Cache::index_entries, part.request, p / 4, paged(Pool::index, p / 4)});
      }
      if (p >= part.committed / 4 * 4 - 4 || part.verify) {
        rows.push_back({Cache::state, part.request, p, std::int64_t{part.state_base} * ring + p % ring});
        rows.push_back(
            {Cache::index_state, part.request, p, std::int64_t{part.state_base} * ring + p % ring});
      }
    }
  }
  std::ranges::sort(rows);
  return rows;
}

bool all_poison(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xFF}; });
}

}  // namespace

TEST_CASE("writes name every row written, with owner, index, slot and bytes") {
  RunConfig config = tiny_config({LayerKind::csa});
  config.cache.draft_rows = 4;
  Harness harness(config);
  harness.admit("a");
  harness.admit("b");
  for (const std::vector<support::Part>& parts :
       {std::vector<support::Part>{{0, 141}, {-1, 2}, {1, 6}}, {{1, 4, 1}, {0, 1}}, {{0, 4, 4}, {1, 2}}}) {
    const StepPlan plan = harness.plans.step(parts);
    harness.run(plan);
    REQUIRE(sorted_writes(harness.engine(), 0) == literal_csa_writes(plan, 16));
    for (const Write& write : harness.engine().writes(0)) {
      if (write.cache != Cache::window) continue;
      // Rows of 584 bytes: 576 in the value part of their page, 8 in its scale part.
      const auto page = harness.engine().read_row(0, Cache::window, write.slot / 64);
      const auto row = write.slot % 64;
      REQUIRE(write.bytes.size() == 584);
      REQUIRE(std::equal(write.bytes.begin(), write.bytes.begin() + 576, page.begin() + row * 576));
      REQUIRE(std::equal(write.bytes.begin() + 576, write.bytes.end(), page.begin() + 64 * 576 + row * 8));
    }
  }
}

TEST_CASE("a restore step writes only what it does not keep, and only what is live at the committed length") {
  for (const C128State form : {C128State::ring, C128State::online}) {
    RunConfig config = tiny_config({LayerKind::csa, LayerKind::hca});
    config.cache.c128_state = form;
    Harness harness(config);
    harness.admit("a");
    harness.prefill(0, 139);
    const auto before = harness.state(0);
    KeepFrom keep{.window = 130,
                  .state_c4 = 137,
                  .state_index = 139,
                  .state_c128 = 139,
                  .entries_c4 = 33,
                  .entries_c128 = 1};
    harness.run(harness.plans.restore(0, 12, 139, keep));
    const auto count = [&](int layer, Cache cache) {
      int rows = 0;
      std::int32_t first = 1000;
      for (const Write& write : harness.engine().writes(layer)) {
        if (write.cache != cache) continue;
        ++rows;
        first = std::min(first, write.index);
      }
      return std::pair(rows, first);
    };
    REQUIRE(count(0, Cache::window) == std::pair(9, 130));
    REQUIRE(count(0, Cache::state) == std::pair(2, 137));
    REQUIRE(count(0, Cache::index_state) == std::pair(0, 1000));
    REQUIRE(count(0, Cache::entries) == std::pair(1, 33));
    REQUIRE(count(0, Cache::index_entries) == std::pair(1, 33));
    REQUIRE(count(1, Cache::state) == std::pair(0, 1000));
    REQUIRE(count(1, Cache::entries) == std::pair(0, 1000));
    REQUIRE(harness.state(0) == before);
    REQUIRE(harness.engine().tensor(0, TensorId::q) == nullptr);

    // Rows up to 100 come again, but what counts is what lives at 139: window rows from 12, no state, no
    // entries.
    StepPlan early = harness.plans.restore(0, 12, 139, {.entries_c4 = 34, .entries_c128 = 1});
    early.rows.resize(89);
    early.requests[0].row_count = 89;
    early.requests[0].end = 101;
    harness.run(early);
    REQUIRE(count(0, Cache::window) == std::pair(89, 12));
    REQUIRE(count(0, Cache::state) == std::pair(0, 1000));
    if (form == C128State::ring) REQUIRE(count(1, Cache::state) == std::pair(0, 1000));
    if (form == C128State::ring) REQUIRE(harness.state(0) == before);
  }
}

TEST_CASE("online state: one bank a row while verifying, the accepted one committed") {
  RunConfig config = tiny_config({LayerKind::hca});
  config.cache.c128_state = C128State::online;
  config.cache.draft_rows = 3;
  Harness harness(config);
  harness.admit("z");
  harness.admit("a");
  harness.prefill(1, 5);
  Engine& engine = harness.engine();
  const auto bank = [&](int number) { return engine.read_row(0, Cache::state, 1 * 4 + number); };
  const auto committed = bank(0);
  REQUIRE_FALSE(all_poison(committed));
  REQUIRE(all_poison(bank(1)));

  const auto states = [&] {
    std::vector<std::pair<std::int64_t, int>> rows;
    for (const Write& write : engine.writes(0)) {
      if (write.cache == Cache::state) rows.emplace_back(write.slot, write.index);
    }
    return rows;
  };
  harness.step({{1, 3, 2}});
  REQUIRE(states() == std::vector<std::pair<std::int64_t, int>>{{5, 5}, {6, 6}, {7, 7}});
  REQUIRE(bank(0) == bank(2));
  REQUIRE(bank(0) != committed);
  REQUIRE(engine.tensor(0, TensorId::compress_state_slot)->dim(0) == 3);

  const auto before = bank(0);
  harness.step({{1, 3, 0}});
  REQUIRE(bank(0) == before);
  REQUIRE(states().size() == 3);
  harness.step({{1, 2}});
  REQUIRE(states() == std::vector<std::pair<std::int64_t, int>>{{4, 8}});
}

TEST_CASE("padding rows are zero bytes, -1 where numbers are integers, and change nothing") {
  Harness harness(tiny_config({LayerKind::csa, LayerKind::hca}));
  harness.admit("a");
  harness.step({{-1, 2}, {0, 9}, {-1, 1}});
  int checked = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (const TensorInfo& info : tensor_catalogue()) {
      const Tensor* tensor = harness.engine().tensor(layer, info.id);
      if (tensor == nullptr || !info.dims.starts_with("token")) continue;
      INFO(path(info.id));
      REQUIRE(tensor->dim(0) == 12);
      const auto row = std::ssize(tensor->bytes()) / 12;
      const auto expected = static_cast<std::byte>(tensor->dtype() == DType::int32 ? 0xFF : 0);
      for (const int token : {0, 1, 11}) {
        REQUIRE(std::ranges::all_of(tensor->bytes().subspan(token * row, row),
                                    [&](std::byte byte) { return byte == expected; }));
      }
      ++checked;
    }
  }
  REQUIRE(checked > 40);
  for (const Write& write : harness.engine().writes(0)) REQUIRE(write.request == 0);
}

TEST_CASE("a replaced tensor is what later stages read") {
  Harness harness(tiny_config({LayerKind::swa}));
  harness.admit("a");
  const StepPlan plan = harness.plans.step({{0, 4}});
  Engine& engine = harness.engine();
  engine.begin_step(plan);
  for (const Stage stage : {Stage::layer_input, Stage::q_down}) engine.run_stage(plan, 0, stage);
  Tensor latent = *engine.tensor(0, TensorId::q_latent);
  std::ranges::fill(latent.bytes(), std::byte{0});
  engine.set_tensor(0, TensorId::q_latent, std::move(latent));
  engine.run_stage(plan, 0, Stage::q_up);
  const auto raw = engine.tensor(0, TensorId::q_raw)->as<std::uint16_t>();
  REQUIRE(std::ranges::all_of(raw, [](std::uint16_t bits) { return bits == 0; }));
  REQUIRE_THROWS_AS(engine.run_stage(plan, 0, Stage::attention_core), InternalError);  // nothing to read yet

  bool called = false;
  engine.stages()[static_cast<std::size_t>(Stage::kv_window)] = [&](const StageCall& call) {
    called = call.layer == 0 && call.stage == Stage::kv_window;
  };
  engine.run_stage(plan, 0, Stage::kv_window);
  REQUIRE(called);
}

TEST_CASE("intermediates that nobody wants are left out, and change no bit") {
  Harness everything(tiny_config({LayerKind::csa}));
  Harness little(tiny_config({LayerKind::csa}));
  little.engine().want({});
  for (Harness* harness : {&everything, &little}) {
    harness->admit("a");
    harness->prefill(0, 50);
  }
  std::ptrdiff_t left_out = 0;
  for (const TensorInfo& info : tensor_catalogue()) {
    const Tensor* all = everything.engine().tensor(0, info.id);
    const Tensor* some = little.engine().tensor(0, info.id);
    if (info.role == Role::intermediate) {
      REQUIRE(some == nullptr);
      left_out += all != nullptr ? 1 : 0;
    } else {
      REQUIRE((all == nullptr) == (some == nullptr));
      if (all != nullptr) REQUIRE(std::ranges::equal(all->bytes(), some->bytes()));
    }
  }
  // Of the catalogue's intermediates a CSA layer has every one.
  REQUIRE(left_out == std::ranges::count(tensor_catalogue(), Role::intermediate, &TensorInfo::role));
  REQUIRE(left_out > 0);
}

TEST_CASE("rows put in from outside are read like rows of our own") {
  const RunConfig config = tiny_config({LayerKind::csa});
  Harness source(config);
  Harness target(config);
  for (Harness* harness : {&source, &target}) harness->admit("a");
  const StepPlan first = source.plans.step({{0, 70}});
  target.plans.step({{0, 70}});
  source.run(first);
  target.engine().begin_step(first);
  target.engine().apply_writes(0, source.engine().writes(0));
  REQUIRE(target.engine().writes(0).empty());
  target.engine().end_step(first);
  source.prefill(0, 3);
  target.prefill(0, 3);
  for (int position = 70; position < 73; ++position) {
    for (const char* path : {"attention.core/out", "indexer.score/scores", "output.project/hidden_out"}) {
      REQUIRE(source.tokens.at({0, path, "a", position}) == target.tokens.at({0, path, "a", position}));
    }
  }
}

TEST_CASE("whole pages go out and in") {
  Harness harness(tiny_config({LayerKind::swa}));
  harness.admit("a");
  harness.prefill(0, 10);
  Engine& engine = harness.engine();
  auto page = engine.read_row(0, Cache::window, 1);
  REQUIRE(page.size() == 37440);
  REQUIRE(all_poison(std::span(page).subspan(64 * 584)));
  std::ranges::fill(page, std::byte{3});
  engine.write_row(0, Cache::window, 2, page);
  REQUIRE(engine.read_row(0, Cache::window, 2) == page);
  REQUIRE_THROWS_AS(engine.read_row(0, Cache::window, 200), InternalError);
  REQUIRE_THROWS_AS(engine.write_row(0, Cache::window, 2, std::span(page).first(100)), InternalError);
}

TEST_CASE("freed memory is poisoned only when asked for, poison strikes where it is told to") {
  for (const bool poison_freed : {false, true}) {
    RunConfig config = tiny_config({LayerKind::csa});
    config.cache.poison_freed = poison_freed;
    Harness harness(config);
    harness.admit("a");
    harness.admit("b");
    harness.step({{0, 60}, {1, 60}});
    Engine& engine = harness.engine();
    const auto base = engine.read_row(0, Cache::state, 0);
    REQUIRE_FALSE(all_poison(base));
    const auto kept = harness.state(1);
    StepPlan drop = harness.plans.drop(0);
    harness.run(drop);
    REQUIRE(all_poison(engine.read_row(0, Cache::window, 1)) == poison_freed);
    REQUIRE(all_poison(engine.read_row(0, Cache::entries, 1)) == poison_freed);
    REQUIRE(all_poison(engine.read_row(0, Cache::index_entries, 1)) == poison_freed);
    REQUIRE(all_poison(engine.read_row(0, Cache::state, 0)) == poison_freed);
    REQUIRE(all_poison(engine.read_row(0, Cache::index_state, 3)) == poison_freed);
    REQUIRE(harness.state(1) == kept);

    StepPlan poison = drop;
    poison.released.clear();
    poison.released_bases.clear();
    poison.poison = Poison{{{Pool::window, 1}, {Pool::entries_c128, 1}}, {0}, 0x7F};
    harness.run(poison);
    const auto page = engine.read_row(0, Cache::window, 1);
    REQUIRE(std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte{0x7F}; }));
    REQUIRE(engine.read_row(0, Cache::state, 3)[9] == std::byte{0x7F});
    REQUIRE(harness.state(1) == kept);
  }
}

TEST_CASE("lists by hand") {
  Harness harness(tiny_config({LayerKind::swa, LayerKind::csa, LayerKind::hca}));
  harness.admit("a");
  harness.prefill(0, 130);
  Engine& engine = harness.engine();
  const auto at = [&](int layer, TensorId id, int row, int item) {
    const Tensor& tensor = *engine.tensor(layer, id);
    return tensor.as<std::int32_t>()[static_cast<std::size_t>(row * tensor.row_elements() + item)];
  };
  // Pages 1, 2, 3 in order: position p lies in slot 64 + p.
  REQUIRE(at(0, TensorId::window_slots, 0, 0) == 64);
  REQUIRE(at(0, TensorId::window_slots, 0, 1) == -1);
  REQUIRE(at(0, TensorId::window_length, 0, 0) == 1);
  REQUIRE(at(0, TensorId::window_slots, 129, 0) == 64 + 2);
  REQUIRE(at(0, TensorId::window_slots, 129, 127) == 64 + 129);
  REQUIRE(at(0, TensorId::window_logical, 129, 127) == 129);
  REQUIRE(at(0, TensorId::window_length, 129, 0) == 128);
  REQUIRE(engine.tensor(0, TensorId::compressed_slots) == nullptr);

  REQUIRE(engine.tensor(1, TensorId::compressed_slots)->dim(1) == 8);  // top-k of tiny
  REQUIRE(at(1, TensorId::compressed_length, 2, 0) == 0);
  REQUIRE(at(1, TensorId::compressed_length, 3, 0) == 1);
  REQUIRE(at(1, TensorId::compressed_slots, 3, 0) == 64);
  REQUIRE(at(1, TensorId::compressed_slots, 3, 1) == -1);
  for (int item = 0; item < 8; ++item) {
    const int entry = at(1, TensorId::selected, 129, item);
    REQUIRE(at(1, TensorId::compressed_logical, 129, item) == entry);
    REQUIRE(at(1, TensorId::compressed_slots, 129, item) == 64 + entry);
    if (item > 0) REQUIRE(entry > at(1, TensorId::selected, 129, item - 1));
  }
  REQUIRE(engine.tensor(2, TensorId::compressed_slots)->dim(1) == 1);
  REQUIRE(at(2, TensorId::compressed_length, 126, 0) == 0);
  REQUIRE(at(2, TensorId::compressed_slots, 126, 0) == -1);
  REQUIRE(at(2, TensorId::compressed_slots, 127, 0) == 2);  // page 1 of two entries
}

TEST_CASE("what this engine cannot do is refused") {
  Harness harness(tiny_config({LayerKind::swa}));
  harness.admit("a");
  StepPlan plan = harness.plans.step({{0, 3}});
  plan.kind = StepKind::graph;
  try {
    harness.engine().begin_step(plan);
    FAIL("a graph step was taken");
  } catch (const SubjectError& error) {
    REQUIRE(std::string(error.what()) == "engine reference has no graphs");
  }
  plan.kind = StepKind::compute;
  plan.rows[1].position = 7;
  REQUIRE_THROWS_AS(harness.engine().begin_step(plan), InternalError);

  const auto make = [](const RunConfig& config) {
    return reference::make_reference_engine(config, seeded_weights(config), seeded_hidden(config));
  };
  REQUIRE_THROWS_AS(make(tiny_config({LayerKind::swa}, "exact")), UsageError);
  for (const auto& [axis, value] : {std::pair{"list_order", "compressed_first"},
                                    {"out_rotation", "f32"},
                                    {"arithmetic", "hopper"}}) {
    RunConfig config = tiny_config({LayerKind::csa});
    config.profile.set(axis, value);
    REQUIRE_THROWS_AS(make(config), UsageError);
  }
  RunConfig config = tiny_config({LayerKind::swa});
  config.geometry.dim = 100;
  REQUIRE_THROWS_AS(make(config), UsageError);
}

TEST_CASE("layer inputs of a chained run can be taken along") {
  RunConfig config = tiny_config({LayerKind::swa, LayerKind::swa});
  config.chain = true;
  Harness first(config);
  first.admit("a");
  first.prefill(0, 20);
  REQUIRE(first.engine().stored_inputs(0).empty());
  const auto rows = first.engine().stored_inputs(1);
  REQUIRE(rows.size() == 20);
  REQUIRE(std::ranges::is_sorted(rows, {}, &StoredInput::content));
  const auto hidden = first.engine().tensor(1, TensorId::hidden)->as<std::uint16_t>();
  for (const StoredInput& row : rows) {
    const auto contents = first.plans.contents(0);
    const auto position = std::ranges::find(contents, row.content) - contents.begin();
    REQUIRE(std::ranges::equal(row.row, hidden.subspan(static_cast<std::size_t>(position * 256), 256)));
  }
  Harness second(config);
  second.admit("a");
  second.plans.adopt(0, first.plans.contents(0));
  REQUIRE_THROWS_AS(second.run(second.plans.restore(0, 0, 20)), InternalError);
  second.engine().store_inputs(1, rows);
  second.run(second.plans.restore(0, 0, 20));
  REQUIRE(second.state(0) == first.state(0));
}
