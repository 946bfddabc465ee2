// Plans of plain rows, worked out by hand: pages, tables, bases, content ids, events.
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "model/seeded.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4 {

static bool operator==(const PageRef& a, const PageRef& b) {
  return a.pool == b.pool && a.page == b.page;
}

}  // namespace dsv4

namespace dsv4::scenario {
namespace {

using test::planned;
using test::table;
using Pages = std::vector<std::int32_t>;

std::vector<PageRef> refs(std::initializer_list<std::pair<Pool, int>> list) {
  std::vector<PageRef> pages;
  for (const auto& [pool, page] : list) pages.push_back({pool, page});
  return pages;
}

TEST_CASE("one prefill: pages, rows, configuration") {
  const RunPlan run = planned("seed: 9\nsteps:\n  - prefill: {request: a, tokens: 37}\n");
  REQUIRE(run.steps.size() == 1);
  const StepPlan& step = run.steps[0];
  CHECK(step.index == 0);
  CHECK(step.kind == StepKind::compute);
  CHECK(step.source == "s.yaml:3");
  CHECK(step.event == R"({"prefill":{"request":"a","tokens":37},"caused":{"admitted":["a"]}})");
  // 37 window rows in one page of 64; 9 entries of ratio 4; no group of 128 is complete.
  CHECK(step.allocated == refs({{Pool::window, 1}, {Pool::entries_c4, 1}, {Pool::index, 1}}));
  CHECK(step.released.empty());
  REQUIRE(step.rows.size() == 37);
  CHECK(step.rows[36].request == 0);
  CHECK(step.rows[36].position == 36);
  CHECK(step.rows[36].content == content_id("a", 36, 0));
  REQUIRE(step.requests.size() == 1);
  const RequestStep& share = step.requests[0];
  CHECK(share.first_row == 0);
  CHECK(share.row_count == 37);
  CHECK(share.begin == 0);
  CHECK(share.end == 37);
  CHECK(share.committed == 37);
  CHECK_FALSE(share.verify);
  REQUIRE(step.live.size() == 1);
  CHECK(step.live[0].length == 37);
  CHECK(table(step.live[0], Pool::window) == Pages{1});
  CHECK(table(step.live[0], Pool::entries_c4) == Pages{1});
  CHECK(table(step.live[0], Pool::entries_c128).empty());
  CHECK(table(step.live[0], Pool::state_c4).empty());
  CHECK(run.config.requests == std::vector<std::string>{"a"});
  CHECK(run.config.state_bases == 1);
  CHECK(run.config.seed == 9);
  // The null page is counted; state rings have no pool.
  CHECK(run.config.pool_pages == std::array<std::int64_t, kPoolCount>{2, 2, 1, 2, 0, 0, 0});
}

TEST_CASE("window pages are given back when their last row leaves the window") {
  const RunPlan run = planned(
      "model: {layers: [swa]}\nsteps:\n  - prefill: {request: a, tokens: 190}\n"
      "  - decode: {requests: [a], repeat: 2}\n");
  // n = 190: the window starts at 63, the last row of page 0. n = 191: it starts at 64.
  CHECK(run.steps[0].released.empty());
  CHECK(table(run.steps[0].live[0], Pool::window) == Pages{1, 2, 3});
  CHECK(run.steps[1].released == refs({{Pool::window, 1}}));
  CHECK(table(run.steps[1].requests[0], Pool::window) == Pages{1, 2, 3});
  CHECK(table(run.steps[1].live[0], Pool::window) == Pages{-1, 2, 3});
  CHECK(run.steps[2].released.empty());
  const RunPlan never = planned(
      "model: {layers: [swa]}\ncache: {swa_release: never}\nsteps:\n"
      "  - prefill: {request: a, tokens: 190}\n  - decode: {requests: [a], repeat: 2}\n");
  CHECK(table(never.steps[2].live[0], Pool::window) == Pages{1, 2, 3});
}

TEST_CASE("a long prefill holds all its window pages during the step") {
  const RunPlan run = planned("model: {layers: [swa]}\nsteps:\n  - prefill: {request: a, tokens: 320}\n");
  CHECK(table(run.steps[0].requests[0], Pool::window) == Pages{1, 2, 3, 4, 5});
  // The window starts at 193: pages 0 .. 2 (rows 0 .. 191) go.
  CHECK(run.steps[0].released == refs({{Pool::window, 1}, {Pool::window, 2}, {Pool::window, 3}}));
  CHECK(run.config.pool_pages[0] == 6);
}

TEST_CASE("a verify step is cut back: pages and content of rejected rows") {
  const RunPlan run = planned(
      "cache: {c4_page: 4, index_page: 8}\nsteps:\n  - prefill: {request: a, tokens: 62}\n"
      "  - verify: {request: a, rows: 4, accept: 1}\n  - decode: {requests: [a], repeat: 2}\n");
  const StepPlan& step = run.steps[1];
  // Rows 62 .. 65: window pages 0 and 1; 16 entries, of which the last closes at 63.
  CHECK(table(step.requests[0], Pool::window) == Pages{1, 2});
  CHECK(table(step.requests[0], Pool::entries_c4) == Pages{1, 2, 3, 4});
  CHECK(step.requests[0].begin == 62);
  CHECK(step.requests[0].end == 66);
  CHECK(step.requests[0].committed == 63);
  CHECK(step.requests[0].verify);
  CHECK(step.released == refs({{Pool::window, 2}}));
  CHECK(table(step.live[0], Pool::window) == Pages{1});
  CHECK(table(step.live[0], Pool::entries_c4) == Pages{1, 2, 3, 4});  // 15 entries: 12 .. 14 are on page 3
  CHECK(step.live[0].length == 63);
  CHECK(step.event == R"({"verify":{"request":"a","rows":4,"accept":1},"caused":{"rejected":{"a":3}}})");
  CHECK(step.rows[0].content == content_id("a", 62, 0));
  CHECK(step.rows[3].content == content_id("a", 65, 0));
  CHECK(run.steps[2].rows[0].position == 63);
  CHECK(run.steps[2].rows[0].content == content_id("a", 63, 1));
  CHECK(run.steps[3].rows[0].content == content_id("a", 64, 1));
  CHECK(run.steps[2].event == R"({"decode":{"requests":["a"]},"caused":{"repeat":[1,2]}})");
}

TEST_CASE("accepting all rows does not change the generation") {
  const RunPlan run = planned(
      "steps:\n  - prefill: {request: a, tokens: 5}\n"
      "  - verify: {request: a, rows: 3, accept: 3}\n  - verify: {request: a, rows: 2, accept: 0}\n"
      "  - verify: {request: a, rows: 2, accept: 0}\n  - decode: {requests: [a]}\n");
  CHECK(run.steps[2].rows[0].content == content_id("a", 8, 0));
  CHECK(run.steps[3].rows[0].content == content_id("a", 8, 1));
  CHECK(run.steps[3].rows[1].content == content_id("a", 9, 1));
  CHECK(run.steps[4].rows[0].content == content_id("a", 8, 2));
}

TEST_CASE("paged state: one page a group of 4, or of 8 rows") {
  const RunPlan run = planned(
      "model: {layers: [csa, hca]}\ncache: {c4_state: paged, c128_state: paged}\nsteps:\n"
      "  - prefill: {request: a, tokens: 7}\n  - decode: {requests: [a], repeat: 2}\n"
      "  - prefill: {request: a, tokens: 119}\n");
  CHECK(table(run.steps[0].live[0], Pool::state_c4) == Pages{1, 2});
  CHECK(table(run.steps[0].live[0], Pool::state_index) == Pages{1, 2});
  CHECK(table(run.steps[0].live[0], Pool::state_c128) == Pages{1});
  // n = 8: rows 4 .. 7 are live. n = 9: row 8 opens a group. All of 0 .. 8 are live for ratio 128.
  CHECK(table(run.steps[1].live[0], Pool::state_c4) == Pages{-1, 2});
  CHECK(table(run.steps[2].live[0], Pool::state_c4) == Pages{-1, 2, 3});
  CHECK(table(run.steps[2].live[0], Pool::state_c128) == Pages{1, 2});
  // n = 128: rows 124 .. 127 of ratio 4 (group 31), none of ratio 128. The pool holds three pages, so page 1
  // is next.
  CHECK(run.config.pool_pages[4] == 4);
  Pages last(31, -1);
  last.push_back(1);
  CHECK(table(run.steps[3].live[0], Pool::state_c4) == last);
  CHECK(table(run.steps[3].live[0], Pool::state_c128).empty());
}

TEST_CASE("page4align: the open group and the previous one, the open one even if it is empty") {
  const RunPlan run = planned(
      "model: {layers: [csa]}\ncache: {c4_state: page4align}\nsteps:\n"
      "  - prefill: {request: a, tokens: 3}\n  - decode: {requests: [a], repeat: 2}\n"
      "  - prefill: {request: a, tokens: 3}\n  - verify: {request: a, rows: 6, accept: 1}\n");
  CHECK(table(run.steps[0].live[0], Pool::state_c4) == Pages{1});
  CHECK(table(run.steps[1].live[0], Pool::state_c4) == Pages{1, 2});      // n = 4
  CHECK(table(run.steps[2].live[0], Pool::state_c4) == Pages{1, 2});      // n = 5
  CHECK(table(run.steps[3].live[0], Pool::state_c4) == Pages{-1, 2, 3});  // n = 8
  // Rows 8 .. 13 lie in groups 2 and 3, and page 1 is free again; n = 9 holds groups 1 and 2.
  CHECK(table(run.steps[4].requests[0], Pool::state_c4) == Pages{-1, 2, 3, 1});
  CHECK(table(run.steps[4].live[0], Pool::state_c4) == Pages{-1, 2, 3});
}

TEST_CASE("a batch keeps the order of its parts and counts padding") {
  const RunPlan run = planned(
      "steps:\n  - batch: [{prefill: {request: b, tokens: 2}}, {prefill: {request: a, tokens: 1}}]\n"
      "  - batch: [{pad: 2}, {decode: {requests: [a]}}, {prefill: {request: b, tokens: 2}}, {pad: 1}]\n");
  CHECK(run.config.requests == std::vector<std::string>{"b", "a"});
  const StepPlan& step = run.steps[1];
  std::vector<std::pair<int, int>> rows;
  for (const Row& row : step.rows) rows.emplace_back(row.request, row.position);
  CHECK(rows == std::vector<std::pair<int, int>>{{-1, -1}, {-1, -1}, {1, 1}, {0, 2}, {0, 3}, {-1, -1}});
  REQUIRE(step.requests.size() == 2);
  CHECK(step.requests[0].request == 1);
  CHECK(step.requests[0].first_row == 2);
  CHECK(step.requests[1].request == 0);
  CHECK(step.requests[1].first_row == 3);
  // Live requests stand in order of admission.
  CHECK(step.live[0].request == 0);
  CHECK(step.live[0].length == 4);
  CHECK(step.live[1].length == 2);
}

TEST_CASE("tokens of an imported prompt have the content of their block") {
  const RunPlan run = planned(
      "trace: {block: 4, requests: {a: {tokens: 6, blocks: [70, 71]}}}\nsteps:\n"
      "  - prefill: {request: a, tokens: 6}\n  - decode: {requests: [a]}\n"
      "  - rewind: {request: a, to: 5}\n  - decode: {requests: [a]}\n");
  CHECK(run.steps[0].rows[3].content == trace_content_id(70, 3));
  CHECK(run.steps[0].rows[5].content == trace_content_id(71, 1));
  CHECK(run.steps[1].rows[0].content == content_id("a", 6, 0));
  CHECK(run.steps[3].rows[0].content == content_id("a", 5, 1));  // another token than the prompt's
}

TEST_CASE("overrides replace single choices") {
  const Scenario scenario =
      test::parse("seed: 1\nprofile: official\nsteps: [{prefill: {request: a, tokens: 2}}]");
  Overrides overrides;
  overrides.profile = "canonical";
  overrides.seed = 5;
  overrides.c4_state = C4State::paged;
  overrides.c128_state = C128State::online;
  overrides.allocate = Allocate::lifo;
  const RunPlan run = plan(scenario, overrides);
  CHECK(run.config.profile == profile_named("canonical"));
  CHECK(run.config.seed == 5);
  CHECK(run.config.cache.c4_state == C4State::paged);
  CHECK(run.config.cache.c128_state == C128State::online);
  CHECK(run.config.cache.allocate == Allocate::lifo);
  const Scenario drafting = test::parse(
      "cache: {c4_state: paged}\nsteps: [{prefill: {request: a, tokens: 2}}, "
      "{verify: {request: a, rows: 12, accept: 1}}]");
  overrides.c4_state = C4State::ring;
  CHECK(test::usage_error([&] { plan(drafting, overrides); }) ==
        "s.yaml: 12 rows to verify do not fit the C4 ring of 16 rows: at most 9 (R - pool window + 1)");
}

TEST_CASE("the step table says what a step does") {
  const std::vector<StepSummary> lines =
      step_table(planned("steps:\n  - batch: [{prefill: {request: a, tokens: 3}}, {pad: 2}]\n  - free: a\n"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].kind == "compute");
  CHECK(lines[0].event == "batch: prefill a tokens=3; pad 2");
  CHECK(lines[0].source == "s.yaml:2");
  CHECK(lines[0].tokens == 3);
  CHECK(lines[0].padding == 2);
  CHECK(lines[0].allocated == 1);
  CHECK(lines[0].pages == 1);
  CHECK(lines[1].kind == "lifecycle");
  CHECK(lines[1].event == "free a");
  CHECK(lines[1].released == 1);
  CHECK(lines[1].pages == 0);
}

TEST_CASE("the time of planning a long decode grows with its length, not with its square") {
  const auto seconds = [](int steps) {
    const Scenario scenario = test::parse(
        "model: {preset: tiny}\nsteps: [{prefill: {request: a, tokens: 1}}, "
        "{decode: {requests: [a], repeat: " +
        std::to_string(steps) + "}}]");
    const std::clock_t begin = std::clock();
    CHECK(plan(scenario).steps.size() == static_cast<std::size_t>(steps) + 1);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(1000);
  const double once = std::min(seconds(8000), seconds(8000));
  CHECK(seconds(64000) < 20 * once);  // linear: 8 times, quadratic: 64 times
}

}  // namespace
}  // namespace dsv4::scenario
