// Sharing, copies, keeps, re-admission, snapshots, poison, fill and graphs, worked out by hand.
#include "model/seeded.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

using test::planned;
using test::table;
using Pages = std::vector<std::int32_t>;

TEST_CASE("a hit shares full pages and copies the partly covered one") {
  // 200 tokens: 50 entries of ratio 4 in pages of 20 (3 pages), 1 entry of ratio 128 in a page of 2.
  const RunPlan run = planned(
      "model: {layers: [csa, hca]}\ncache: {c4_page: 20, index_page: 32}\nsteps:\n"
      "  - prefill: {request: a, tokens: 200}\n"
      "  - prefix_hit: {request: b, from: a, tokens: 128}\n");
  const StepPlan& step = run.steps[1];
  // 32 entries: page 1 of 20 is shared, page 2 is copied up to its 12th row; the index page of 32 is shared.
  CHECK(table(step.live[0], Pool::entries_c4) == Pages{1, 2, 3});
  CHECK(table(step.live[1], Pool::entries_c4) == Pages{1, 4});
  CHECK(table(step.live[0], Pool::index) == Pages{1, 2});
  CHECK(table(step.live[1], Pool::index) == Pages{1});
  CHECK(table(step.live[1], Pool::entries_c128) == Pages{2});
  REQUIRE(step.copies.size() == 2);
  CHECK(step.copies[0].pool == Pool::entries_c4);
  CHECK(step.copies[0].from == 2);
  CHECK(step.copies[0].to == 4);
  CHECK(step.copies[0].rows == 12);
  CHECK(step.copies[1].pool == Pool::entries_c128);
  CHECK(step.copies[1].from == 1);
  CHECK(step.copies[1].to == 2);
  CHECK(step.copies[1].rows == 1);
  REQUIRE(step.prefix.size() == 1);
  CHECK(step.prefix[0].request == 1);
  CHECK(step.prefix[0].source == 0);
  CHECK(step.prefix[0].tokens == 128);
  CHECK(step.live[1].length == 128);
  CHECK(step.live[1].state_base == 1);
}

TEST_CASE("a shared page stays until the last holder lets go, and is never written") {
  // Pages of 8 entries: 128 tokens are 32 entries, 4 pages, all shared.
  const RunPlan run = planned(
      "model: {layers: [csa]}\ncache: {c4_page: 8, index_page: 8}\nsteps:\n"
      "  - prefill: {request: a, tokens: 128}\n"
      "  - prefix_hit: {request: b, from: a, tokens: 128}\n"
      "  - rewind: {request: a, to: 70}\n"
      "  - prefill: {request: a, tokens: 2}\n"
      "  - free: b\n  - free: a\n");
  CHECK(table(run.steps[1].live[1], Pool::entries_c4) == Pages{1, 2, 3, 4});
  // 17 entries stay: a drops page 4, which b still holds, and keeps 1 .. 3.
  CHECK(table(run.steps[2].live[0], Pool::entries_c4) == Pages{1, 2, 3});
  for (const PageRef& page : run.steps[2].released) CHECK(page.pool == Pool::window);
  // Entry 17 would go to page 3: a copy of its first row is made.
  const StepPlan& write = run.steps[3];
  REQUIRE(write.copies.size() == 2);
  CHECK(write.copies[0].from == 3);
  CHECK(write.copies[0].to == 5);
  CHECK(write.copies[0].rows == 1);
  CHECK(table(write.live[0], Pool::entries_c4) == Pages{1, 2, 5});
  CHECK(table(write.live[1], Pool::entries_c4) == Pages{1, 2, 3, 4});
  const auto released = [&](std::size_t step) {
    Pages pages;
    for (const PageRef& page : run.steps[step].released) {
      if (page.pool == Pool::entries_c4) pages.push_back(page.page);
    }
    return pages;
  };
  CHECK(released(4) == Pages{3, 4});
  CHECK(released(5) == Pages{1, 2, 5});
}

TEST_CASE("kept pages serve hits until the name is freed, evicted or admitted again") {
  const std::string begin =
      "model: {layers: [csa]}\nsteps:\n  - prefill: {request: a, tokens: 100}\n"
      "  - free: {request: a, keep: true}\n";
  const RunPlan hit =
      planned(begin + "  - prefix_hit: {request: b, from: a, tokens: 40}\n  - free: a\n  - free: b\n");
  // The window and the base go at once; one compressed and one index page stay.
  CHECK(hit.steps[1].released.size() == 2);
  CHECK(hit.steps[1].released_bases == Pages{0});
  CHECK(hit.steps[1].live.empty());
  CHECK(hit.steps[2].prefix[0].source == 0);
  CHECK(hit.steps[2].live[0].state_base == 0);
  CHECK(hit.steps[3].released.size() == 2);
  const RunPlan evicted = planned(begin + "  - evict: {request: a, what: kept}\n");
  CHECK(evicted.steps[2].released.size() == 2);
  const RunPlan again = planned(begin + "  - prefill: {request: a, tokens: 3}\n");
  CHECK(again.steps[2].released.size() == 2);
  CHECK(again.config.requests == std::vector<std::string>{"a", "a"});
  CHECK(again.steps[2].rows[0].request == 1);
  CHECK(again.steps[2].rows[0].content == content_id("a", 0, 0));
  // The name itself can go on from what it kept.
  const RunPlan own = planned(begin + "  - prefix_hit: {request: a, from: a, tokens: 96}\n  - free: a\n");
  CHECK(own.steps[2].prefix[0].source == 0);
  CHECK(own.steps[2].prefix[0].request == 1);
  CHECK(own.steps[3].live.empty());
}

TEST_CASE("a snapshot keeps content, generations and length") {
  const RunPlan run = planned(
      "steps:\n  - prefill: {request: a, tokens: 20}\n  - rewind: {request: a, to: 10}\n"
      "  - decode: {requests: [a]}\n  - save: {request: a, as: s}\n"
      "  - decode: {requests: [a]}\n  - load: {request: d, from: s}\n"
      "  - decode: {requests: [d, a]}\n");
  CHECK(run.steps[3].kind == StepKind::lifecycle);
  const StepPlan& load = run.steps[5];
  CHECK(load.kind == StepKind::restore);
  REQUIRE(load.rows.size() == 11);
  CHECK(load.rows[9].content == content_id("a", 9, 0));
  CHECK(load.rows[10].content == content_id("a", 10, 1));
  CHECK(load.rows[10].request == 1);
  CHECK(run.steps[6].rows[0].content == content_id("d", 11, 1));
  CHECK(run.steps[6].rows[1].content == content_id("a", 12, 1));
}

TEST_CASE("poison names what nobody holds") {
  const RunPlan run = planned(
      "model: {layers: [swa]}\ncache: {pages: {pool: 5}}\nsteps:\n"
      "  - prefill: {request: a, tokens: 70}\n  - prefill: {request: b, tokens: 3}\n  - free: a\n"
      "  - poison: {what: freed, value: large}\n  - poison: {what: unused}\n");
  const auto pages = [](const Poison& poison) {
    Pages list;
    for (const PageRef& page : poison.pages) list.push_back(page.page);
    return list;
  };
  REQUIRE(run.steps[3].poison.has_value());
  CHECK(pages(*run.steps[3].poison) == Pages{1, 2});
  CHECK(run.steps[3].poison->state_bases == Pages{0});
  CHECK(run.steps[3].poison->value == 0x7E);
  CHECK(pages(*run.steps[4].poison) == Pages{1, 2, 4, 5});
  CHECK(run.steps[4].poison->value == 0xFF);
  CHECK(run.config.pool_pages[0] == 6);
}

TEST_CASE("fill gives a request the pages and rows of its length") {
  const RunPlan run = planned(
      "model: {layers: [csa, hca]}\ncache: {c4_state: paged}\nsteps:\n"
      "  - fill: {request: a, tokens: 1001}\n  - decode: {requests: [a]}\n");
  const StepPlan& step = run.steps[0];
  CHECK(step.kind == StepKind::fill);
  CHECK(step.rows.empty());
  REQUIRE(step.fill.has_value());
  CHECK(step.fill->tokens == 1001);
  // Window rows 874 .. 1000: pages 13, 14, 15. 250 entries: 4 pages. 7 entries: 4 pages. State groups 249,
  // 250.
  const auto& window = table(step.live[0], Pool::window);
  REQUIRE(window.size() == 16);
  CHECK(window[12] == -1);
  CHECK(window[13] == 1);
  CHECK(table(step.live[0], Pool::entries_c4).size() == 4);
  CHECK(table(step.live[0], Pool::entries_c128).size() == 4);
  const auto& state = table(step.live[0], Pool::state_c4);
  REQUIRE(state.size() == 251);
  CHECK(state[248] == -1);
  CHECK(state[249] == 1);
  CHECK(state[250] == 2);
  CHECK(run.steps[1].rows[0].position == 1001);
  CHECK(run.steps[1].rows[0].content == content_id("a", 1001, 0));
}

TEST_CASE("graphs are planned, padded to what was captured") {
  const RunPlan run = planned(
      "steps:\n  - capture: {as: g, rows: 4}\n  - prefill: {request: a, tokens: 3}\n"
      "  - replay_graph: {from: g, batch: [{decode: {requests: [a]}}, {pad: 1}]}\n");
  CHECK(run.steps[0].kind == StepKind::graph);
  REQUIRE(run.steps[0].rows.size() == 4);
  CHECK(run.steps[0].rows[3].request == -1);
  CHECK(run.steps[0].requests.empty());
  CHECK(run.steps[2].kind == StepKind::graph);
  REQUIRE(run.steps[2].rows.size() == 4);
  CHECK(run.steps[2].rows[0].position == 3);
  CHECK(run.steps[2].rows[3].request == -1);
}

TEST_CASE("resume keeps index and place, with the lowest free base") {
  const RunPlan run = planned(
      "steps:\n  - prefill: {request: a, tokens: 3}\n  - prefill: {request: b, tokens: 3}\n"
      "  - preempt: a\n  - prefill: {request: c, tokens: 3}\n  - resume: a\n");
  CHECK(run.steps[2].released_bases == Pages{0});
  const auto& live = run.steps[4].live;
  REQUIRE(live.size() == 3);
  CHECK(live[0].request == 0);
  CHECK(live[0].state_base == 2);
  CHECK(live[1].request == 1);
  CHECK(live[2].request == 2);
  CHECK(live[2].state_base == 0);
  CHECK(run.config.state_bases == 3);
}

TEST_CASE("a name that comes back takes no page that it gives back in the same step") {
  for (const char* const back :
       {"prefill: {request: a, tokens: 4}", "fill: {request: a, tokens: 4}", "load: {request: a, from: s}",
        "batch: [{prefill: {request: a, tokens: 4}}, {pad: 1}]"}) {
    INFO(back);
    const RunPlan run =
        test::planned(std::string("model: {layers: [csa]}\ncache: {poison_freed: true}\nsteps:\n"
                                  "  - prefill: {request: a, tokens: 4}\n"
                                  "  - save: {request: a, as: s}\n"
                                  "  - free: {request: a, keep: true}\n"
                                  "  - prefill: {request: b, tokens: 4}\n  - ") +
                      back + "\n");
    const StepPlan& step = run.steps.back();
    CHECK_FALSE(step.released.empty());  // what the first of the name kept
    for (const PageRef& page : step.allocated) {
      for (const PageRef& gone : step.released)
        CHECK_FALSE((page.pool == gone.pool && page.page == gone.page));
    }
  }
}

TEST_CASE("online state that is verified has banks, also for a single row") {
  const std::string script =
      "steps:\n  - prefill: {request: a, tokens: 1}\n  - verify: {request: a, rows: 1, accept: 0}\n";
  const std::string online = "model: {layers: [hca]}\ncache: {c128_state: online";
  CHECK(online_banks(test::planned(online + "}\n" + script).config.cache) == 3);
  CHECK(test::planned("model: {layers: [hca]}\n" + script).config.cache.draft_rows == 1);
  CHECK(test::usage_error([&] { test::parse(online + ", draft: 1}\n" + script); }).find("draft must be 2") !=
        std::string::npos);
}

}  // namespace
}  // namespace dsv4::scenario
