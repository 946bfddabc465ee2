// Window rows: every kind of read and write that a list or a stage may do wrong, with the place and the last
// writer worked out by hand. A page has 4 rows: row p of a request whose table is {x, y} lies in slot 4 x +
// p, then 4 y + p - 4.
#include "oracle/lifetime/scripted.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::test;
using compare::Finding;
using Kinds = std::vector<std::string>;

namespace {

const std::vector<std::vector<std::int32_t>> kListsOfPage1{{4}, {4, 5}, {4, 5, 6}};

/// a has positions 0 .. 2 in page 1, b position 0 in page 2.
void two_requests(Watch& watch, const Tables& a, const Tables& b) {
  Step step(0, R"({"batch":[]})");
  step.allocate(Pool::window, 1).allocate(Pool::window, 2).rows(0, 0, 3, a).rows(1, 0, 1, b);
  for (std::int32_t p = 0; p < 3; ++p) watch.wrote(Cache::window, 4 + p, 0, p);
  watch.wrote(Cache::window, 8, 1, 0);
  watch.window({{4}, {4, 5}, {4, 5, 6}, {8}});
  REQUIRE(watch.run(step).empty());
}

/// Position 3 of a, whose list is given.
std::vector<Finding> next_row(Watch& watch, const Tables& a, const Tables& b,
                              const std::vector<std::int32_t>& list) {
  watch.wrote(Cache::window, 7, 0, 3);
  watch.window({list});
  return watch.run(Step(1, R"({"decode":{}})").rows(0, 3, 4, a).live(1, 1, b));
}

}  // namespace

TEST_CASE("lists that name the right rows give no finding") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Tables b = tables({2});
  two_requests(watch, a, b);
  CHECK(next_row(watch, a, b, {4, 5, 6, 7}).empty());
}

TEST_CASE("a list off by one reads another position") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Tables b = tables({2});
  two_requests(watch, a, b);
  const std::vector<Finding> found = next_row(watch, a, b, {5, 6, 7});
  REQUIRE(kinds(found) == Kinds{"read_stale"});
  CHECK(found[0].step == 1);
  CHECK(found[0].layer == 0);
  CHECK(found[0].event == R"({"decode":{}})");
  CHECK(found[0].stage == Stage::attention_lists);
  CHECK(found[0].cache == Cache::window);
  CHECK(found[0].request == "a");
  CHECK(found[0].position == 0);
  CHECK(found[0].slot == 5);
  CHECK(found[0].page == 1);
  CHECK(found[0].offset == 1);
  CHECK(found[0].owner == "a");
  CHECK(found[0].last_writer == "a, position 1, in step 0 (kv.window)");
  CHECK(found[0].message.find("it holds position 1; and 2 rows more") != std::string::npos);
}

TEST_CASE("a foreign slot names its holder and writer") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Tables b = tables({2});
  two_requests(watch, a, b);
  const std::vector<Finding> found = next_row(watch, a, b, {8, 5, 6, 7});
  REQUIRE(kinds(found) == Kinds{"read_foreign"});
  CHECK(found[0].position == 0);
  CHECK(found[0].slot == 8);
  CHECK(found[0].owner == "b");
  CHECK(found[0].last_writer == "b, position 0, in step 0 (kv.window)");
}

TEST_CASE("a freed page names who wrote it last") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  two_requests(watch, a, tables({2}));
  REQUIRE(watch.run(Step(1, R"({"free":"b"})").release(Pool::window, 2).live(0, 3, a)).empty());
  watch.wrote(Cache::window, 7, 0, 3);
  watch.window({{4, 8, 6, 7}});
  const std::vector<Finding> found = watch.run(Step(2).rows(0, 3, 4, a));
  REQUIRE(kinds(found) == Kinds{"read_freed"});
  CHECK(found[0].position == 1);
  CHECK(found[0].page == 2);
  CHECK(found[0].offset == 0);
  CHECK(found[0].owner == "nobody");
  CHECK(found[0].last_writer == "b, position 0, in step 0 (kv.window)");
  CHECK(found[0].message.find("given back in step 1") != std::string::npos);
}

TEST_CASE("a row that was never inserted is found in the step that left it out") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  for (const std::int32_t p : {0, 2}) watch.wrote(Cache::window, 4 + p, 0, p);
  watch.window(kListsOfPage1);
  const std::vector<Finding> found = watch.run(Step(0).allocate(Pool::window, 1).rows(0, 0, 3, a));
  REQUIRE(kinds(found) == Kinds{"read_unwritten"});
  CHECK(found[0].position == 1);
  CHECK(found[0].slot == 5);
  CHECK(found[0].last_writer == "nobody");
}

TEST_CASE("without a list the live rows after the step tell of a missing insert") {
  Watch watch(LayerKind::swa);
  for (const std::int32_t p : {0, 2}) watch.wrote(Cache::window, 4 + p, 0, p);
  const std::vector<Finding> found = watch.run(Step(0).allocate(Pool::window, 1).rows(0, 0, 3, tables({1})));
  REQUIRE(kinds(found) == Kinds{"live_unwritten"});
  CHECK(found[0].stage == Stage::kv_window);
  CHECK(found[0].position == 1);
}

TEST_CASE("what a page's former holder wrote does not count for the next one") {
  Watch watch(LayerKind::swa);
  two_requests(watch, tables({1}), tables({2}));
  REQUIRE(watch.run(Step(1, R"({"free":"b"})").release(Pool::window, 2).live(0, 3, tables({1}))).empty());
  // c takes page 2 and does not write its only row; the slot holds b's row of the same position.
  watch.window({{8}});
  const std::vector<Finding> found =
      watch.run(Step(2).allocate(Pool::window, 2).rows(2, 0, 1, tables({2})).live(0, 3, tables({1})));
  REQUIRE(kinds(found) == Kinds{"read_unwritten"});
  CHECK(found[0].request == "c");
  CHECK(found[0].last_writer == "b, position 0, in step 0 (kv.window)");
}

TEST_CASE("a rejected row is stale although its position is the right one") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  for (std::int32_t p = 0; p < 3; ++p) watch.wrote(Cache::window, 4 + p, 0, p);
  // Positions 1 and 2 of the verify step are rejected.
  REQUIRE(watch.run(Step(0).allocate(Pool::window, 1).rows(0, 0, 3, a, 1)).empty());
  watch.window({{4, 5}});
  const std::vector<Finding> found = watch.run(Step(1).rows(0, 1, 2, a, -1, 2));
  REQUIRE(kinds(found) == Kinds{"read_stale"});
  CHECK(found[0].position == 1);
  CHECK(found[0].last_writer == "a, position 1, in step 0 (kv.window)");
  CHECK(found[0].message.find("another token of that position") != std::string::npos);
}

TEST_CASE("the null page and slots that do not exist are outside") {
  for (const std::int32_t slot : {1, 28}) {
    Watch watch(LayerKind::swa);
    watch.wrote(Cache::window, 4, 0, 0);
    watch.window({{slot}});
    const std::vector<Finding> found =
        watch.run(Step(0).allocate(Pool::window, 1).rows(0, 0, 1, tables({1})));
    REQUIRE(kinds(found) == Kinds{"read_outside"});
    CHECK(found[0].slot == slot);
  }
}

TEST_CASE("writes belong to the request, the page and the position") {
  struct Case {
    std::int64_t slot;
    const char* kind;
    const char* owner;
    const char* last_writer;
  };
  const Case cases[]{{8, "write_foreign", "b", "b, position 0, in step 0 (kv.window)"},
                     {12, "write_freed", "nobody", "nobody"},
                     {6, "write_misplaced", "a", "a, position 2, in step 0 (kv.window)"},
                     {3, "write_outside", "nobody", "nobody"}};
  for (const Case& one : cases) {
    Watch watch(LayerKind::swa);
    const Tables a = tables({1});
    const Tables b = tables({2});
    two_requests(watch, a, b);
    watch.wrote(Cache::window, one.slot, 0, 3);
    const std::vector<Finding> found = watch.run(Step(1).rows(0, 3, 4, a).live(1, 1, b));
    REQUIRE_FALSE(found.empty());
    CHECK(found[0].kind == one.kind);
    CHECK(found[0].stage == Stage::kv_window);
    CHECK(found[0].request == "a");
    CHECK(found[0].position == 3);
    CHECK(found[0].slot == one.slot);
    CHECK(found[0].owner == one.owner);
    CHECK(found[0].last_writer == one.last_writer);
  }
}

TEST_CASE("a page that is given back in use is found at that event") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Tables b = tables({2});
  two_requests(watch, a, b);
  const std::vector<Finding> found =
      watch.run(Step(1, R"({"evict":"x"})").release(Pool::window, 1).live(0, 3, a).live(1, 1, b));
  REQUIRE(kinds(found) == Kinds{"page_freed_in_use", "live_freed"});
  CHECK(found[0].page == 1);
  CHECK(found[0].owner == "a");
  CHECK(found[0].event == R"({"evict":"x"})");
  CHECK(found[1].position == 0);
  CHECK(found[1].last_writer == "a, position 0, in step 0 (kv.window)");
}

TEST_CASE("pages are handed out once, freed once and not poisoned in use") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Tables b = tables({2});
  two_requests(watch, a, b);
  Step poison(1);
  poison.live(0, 3, a).live(1, 1, b).plan.poison.emplace();
  poison.plan.poison->pages = {{Pool::window, 5}, {Pool::window, 2}};
  const std::vector<Finding> found = watch.run(poison);
  REQUIRE(kinds(found) == Kinds{"poison_held"});
  CHECK(found[0].page == 2);
  CHECK(found[0].owner == "b");
  CHECK(kinds(watch.run(Step(2).allocate(Pool::window, 1).live(0, 3, a).live(1, 1, b)))[0] ==
        "page_handed_out_twice");
  CHECK(kinds(watch.run(Step(3).release(Pool::window, 6).live(0, 3, a).live(1, 1, b)))[0] ==
        "page_freed_twice");
  CHECK(kinds(watch.run(Step(4).live(0, 3, a).live(1, 1, b).live(2, 0, tables({2}))))[0] == "page_of_two");
  CHECK(kinds(watch.run(Step(5).live(0, 3, a).live(1, 1, b).live(2, 0, tables({4}))))[0] == "page_not_held");
}

TEST_CASE("the engine's own table is held against the allocator's") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1, 3});
  Step step(0);
  step.allocate(Pool::window, 1).allocate(Pool::window, 3).rows(0, 0, 5, a);
  for (std::int32_t p = 0; p < 5; ++p) watch.wrote(Cache::window, p < 4 ? 4 + p : 12, 0, p);
  watch.ledger.begin(step.plan);
  watch.checker.begin(step.plan);
  watch.checker.layer(watch.engine, step.plan, 0, watch.writes);
  const std::vector<HeldTable> right{{0, Pool::window, 0, {1, 3}}, {0, Pool::window, 1, {3}}};
  watch.checker.tables(right, step.plan);
  const std::vector<HeldTable> wrong{{0, Pool::window, 1, {2}}};
  watch.checker.tables(wrong, step.plan);
  watch.ledger.end(step.plan);
  const std::vector<Finding> found = watch.checker.end(step.plan);
  REQUIRE(kinds(found) == Kinds{"table_differs"});
  CHECK(found[0].request == "a");
  CHECK(found[0].page == 2);
  CHECK(found[0].message.find("page 2 as item 1, the allocator gave page 3") != std::string::npos);
}

TEST_CASE("a step that another run has done counts as done right") {
  Watch watch(LayerKind::swa);
  const Tables a = tables({1});
  const Step first = Step(0).allocate(Pool::window, 1).rows(0, 0, 3, a);
  watch.ledger.begin(first.plan);
  watch.checker.begin(first.plan);
  watch.checker.assume_right(first.plan);
  watch.ledger.end(first.plan);
  CHECK(watch.checker.end(first.plan).empty());
  CHECK(next_row(watch, a, tables({}), {4, 5, 6, 7}).empty());
}

TEST_CASE("findings of other checks are told who wrote the row") {
  Watch watch(LayerKind::swa);
  two_requests(watch, tables({1}), tables({2}));
  Finding changed;
  changed.layer = 0;
  changed.kind = "changed_without_write";
  changed.cache = Cache::window;
  changed.page = 1;
  changed.offset = 2;
  std::vector<Finding> findings{changed};
  watch.checker.name_writers(findings);
  CHECK(findings[0].slot == 6);
  CHECK(findings[0].last_writer == "a, position 2, in step 0 (kv.window)");
}
