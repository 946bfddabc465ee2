// State rings, entries, prefixes: what pools, scores and compressed lists read. Ratio 4: entry j is pooled
// over positions 4 j - 4 .. 4 j + 3; the ring of request r has the slots 8 r .. 8 r + 7; entry pages have 2
// rows.
#include <algorithm>

#include "oracle/lifetime/scripted.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::test;
using compare::Finding;
using Kinds = std::vector<std::string>;

namespace {

/// What a right engine writes for rows begin .. end - 1 of a request in one layer of ratio 4, the state rows
/// of `left_out` excepted.
void right_writes(Watch& watch, std::int32_t request, std::int32_t begin, std::int32_t end,
                  const Tables& held, std::int32_t left_out = -1) {
  const auto& window = (*held)[static_cast<std::size_t>(Pool::window)];
  const auto& entries = (*held)[static_cast<std::size_t>(Pool::entries_c4)];
  for (std::int32_t p = begin; p < end; ++p)
    watch.wrote(Cache::window, window[static_cast<std::size_t>(p / 4)] * 4 + p % 4, request, p);
  for (std::int32_t p = std::max(begin, end / 4 * 4 - 4); p < end; ++p) {
    if (p != left_out) watch.wrote(Cache::state, 8 * request + p % 8, request, p);
    watch.wrote(Cache::index_state, 8 * request + p % 8, request, p);
  }
  for (std::int32_t j = begin / 4; j < end / 4; ++j) {
    const std::int64_t slot = entries[static_cast<std::size_t>(j / 2)] * 2 + j % 2;
    watch.wrote(Cache::entries, slot, request, j);
    watch.wrote(Cache::index_entries, slot, request, j);
  }
}

Step& pages(Step& step, std::initializer_list<std::int32_t> window,
            std::initializer_list<std::int32_t> entries) {
  for (const std::int32_t page : window) step.allocate(Pool::window, page);
  for (const std::int32_t page : entries) step.allocate(Pool::entries_c4, page).allocate(Pool::index, page);
  return step;
}

/// a with 6 tokens: positions 0 .. 5 in the ring, entry 0 in slot 4 (page 2).
void six_tokens(Watch& watch, const Tables& a, std::int32_t left_out = -1) {
  Step step(0);
  pages(step, {1, 2}, {2}).rows(0, 0, 6, a);
  right_writes(watch, 0, 0, 6, a, left_out);
  const std::vector<Finding> found = watch.run(step);
  REQUIRE(kinds(found) == (left_out < 0 ? Kinds{} : Kinds{"live_unwritten"}));
}

}  // namespace

TEST_CASE("a pool that reads a state row nobody wrote") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  six_tokens(watch, a, 4);
  right_writes(watch, 0, 6, 8, a);
  const std::vector<Finding> found = watch.run(Step(1).rows(0, 6, 8, a));
  REQUIRE(kinds(found) == Kinds{"read_unwritten"});
  CHECK(found[0].stage == Stage::compress_pool);
  CHECK(found[0].cache == Cache::state);
  CHECK(found[0].position == 4);
  CHECK(found[0].slot == 4);
  CHECK(found[0].last_writer == "nobody");
}

TEST_CASE("a pool that reads a ring slot with another position") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  six_tokens(watch, a);
  // Position 6 is written one slot early, over position 5; entry 1 closes in the next step.
  watch.wrote(Cache::window, 10, 0, 6);
  watch.wrote(Cache::state, 5, 0, 6);
  watch.wrote(Cache::index_state, 6, 0, 6);
  std::vector<Finding> found = watch.run(Step(1).rows(0, 6, 7, a));
  REQUIRE(kinds(found) == Kinds{"write_misplaced"});
  CHECK(found[0].stage == Stage::compress_state);
  CHECK(found[0].position == 6);
  CHECK(found[0].slot == 5);
  CHECK(found[0].last_writer == "a, position 5, in step 0 (compress.state)");
  right_writes(watch, 0, 7, 8, a);
  found = watch.run(Step(2).rows(0, 7, 8, a));
  REQUIRE(kinds(found) == Kinds{"read_stale", "read_unwritten"});
  CHECK(found[0].stage == Stage::compress_pool);
  CHECK(found[0].position == 5);
  CHECK(found[0].last_writer == "a, position 6, in step 1 (compress.state)");
  CHECK(found[1].position == 6);
}

TEST_CASE("scores read index entries up to what is visible") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  six_tokens(watch, a);
  right_writes(watch, 0, 6, 7, a);
  Tensor visible(DType::int32, {1});
  visible.as<std::int32_t>()[0] = 2;  // entry 1 is not closed
  watch.engine.tensors[{0, TensorId::visible}] = visible;
  const std::vector<Finding> found = watch.run(Step(1).rows(0, 6, 7, a));
  REQUIRE(kinds(found) == Kinds{"read_unwritten"});
  CHECK(found[0].stage == Stage::indexer_score);
  CHECK(found[0].cache == Cache::index_entries);
  CHECK(found[0].entry == 1);
  CHECK(found[0].slot == 5);
}

TEST_CASE("compressed lists follow the selection") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2, 3}, {2});
  Step step(0);
  pages(step, {1, 2, 3}, {2}).rows(0, 0, 9, a);
  right_writes(watch, 0, 0, 9, a);
  REQUIRE(watch.run(step).empty());
  for (const bool right : {true, false}) {
    right_writes(watch, 0, right ? 9 : 10, right ? 10 : 11, a);
    watch.put(TensorId::selected, {{1, 0}}, 2);
    watch.put(TensorId::compressed_slots,
              {right ? std::vector<std::int32_t>{5, 4} : std::vector<std::int32_t>{4, 5}}, 2);
    const std::vector<Finding> found =
        watch.run(Step(right ? 1 : 2).rows(0, right ? 9 : 10, right ? 10 : 11, a));
    if (right) {
      REQUIRE(found.empty());
      continue;
    }
    REQUIRE(kinds(found) == Kinds{"read_stale"});
    CHECK(found[0].entry == 1);
    CHECK(found[0].slot == 4);
    CHECK(found[0].last_writer == "a, entry 0, in step 0 (compress.finish)");
    CHECK(found[0].message.find("it holds entry 0; and 1 rows more") != std::string::npos);
  }
}

TEST_CASE("a prefix is shared by content, and a shared page is not written") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  Step first(0);
  pages(first, {1, 2}, {2}).rows(0, 0, 8, a);
  right_writes(watch, 0, 0, 8, a);
  REQUIRE(watch.run(first).empty());
  // b takes entries 0 and 1 of a (page 2 in common) and recomputes what else is live at length 8.
  const Tables b = tables({3, 4}, {2});
  Step hit(1, R"({"prefix_hit":{}})");
  pages(hit, {3, 4}, {}).live(0, 8, a).rows(1, 0, 8, b);
  hit.plan.kind = StepKind::restore;
  hit.plan.prefix.push_back({1, 0, 8});
  hit.plan.requests[0].from.entries_c4 = 2;
  right_writes(watch, 1, 0, 8, b);
  std::erase_if(watch.writes, [](const Write& write) { return oracle::holds_entries(write.cache); });
  REQUIRE(watch.run(hit).empty());
  watch.wrote(Cache::entries, 5, 1, 1);
  const Step again = Step(2).live(0, 8, a).rows(1, 8, 8, b);
  std::vector<Finding> found = watch.run(again);
  REQUIRE(kinds(found) == Kinds{"write_shared"});
  CHECK(found[0].entry == 1);
  CHECK(found[0].page == 2);
  CHECK(found[0].request == "b");
  CHECK(found[0].last_writer == "a, entry 1, in step 0 (compress.finish)");
}

TEST_CASE("rows of another content are not a prefix") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  Step first(0);
  pages(first, {1, 2}, {2}).rows(0, 0, 8, a);
  right_writes(watch, 0, 0, 8, a);
  REQUIRE(watch.run(first).empty());
  // The table of b names a's page, but no prefix was hit: its tokens are others.
  const Tables b = tables({3, 4}, {2});
  Step hit(1);
  pages(hit, {3, 4}, {}).live(0, 8, a).rows(1, 0, 8, b, -1, 7);
  right_writes(watch, 1, 0, 8, b);
  std::erase_if(watch.writes, [](const Write& write) { return oracle::holds_entries(write.cache); });
  const std::vector<Finding> found = watch.run(hit);
  REQUIRE(kinds(found) == Kinds{"live_stale", "live_stale"});
  CHECK(found[0].cache == Cache::entries);
  CHECK(found[0].entry == 0);
  CHECK(found[0].last_writer == "a, entry 0, in step 0 (compress.finish)");
  CHECK(found[1].cache == Cache::index_entries);
}

TEST_CASE("copied rows keep their writer, those behind them are not there") {
  Watch watch(LayerKind::csa);
  const Tables a = tables({1, 2}, {2});
  six_tokens(watch, a);  // entry 0 in slot 4
  const Tables b = tables({3}, {3});
  Step hit(1);
  pages(hit, {3}, {3}).live(0, 6, a).rows(1, 0, 4, b);
  hit.plan.kind = StepKind::restore;
  hit.plan.prefix.push_back({1, 0, 4});
  hit.plan.requests[0].from.entries_c4 = 1;
  hit.plan.copies = {{Pool::entries_c4, 2, 3, 1}, {Pool::index, 2, 3, 1}};
  right_writes(watch, 1, 0, 4, b);
  std::erase_if(watch.writes, [](const Write& write) { return oracle::holds_entries(write.cache); });
  REQUIRE(watch.run(hit).empty());
  // Entry 0 is read where it was copied to; slot 7, entry 1, is empty.
  right_writes(watch, 1, 4, 5, tables({3, 4}, {3}));
  watch.put(TensorId::selected, {{0, 1}}, 2);
  watch.put(TensorId::compressed_slots, {{6, 7}}, 2);
  const std::vector<Finding> found =
      watch.run(Step(2).allocate(Pool::window, 4).live(0, 6, a).rows(1, 4, 5, tables({3, 4}, {3})));
  REQUIRE(kinds(found) == Kinds{"read_unwritten"});
  CHECK(found[0].entry == 1);
  Finding copied;
  copied.layer = 0;
  copied.cache = Cache::entries;
  copied.page = 3;
  copied.offset = 0;
  std::vector<Finding> named{copied};
  watch.checker.name_writers(named);
  CHECK(named[0].last_writer == "a, entry 0, in step 0 (compress.finish), brought there in step 1");
}
