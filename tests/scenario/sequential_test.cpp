// `same_as: sequential`: every request alone, one committed token a step.
#include "model/seeded.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

TEST_CASE("the committed tokens of each request, with their content") {
  const Scenario scenario = test::parse(
      "cache: {draft: 4}\nsteps:\n  - prefill: {request: a, tokens: 128}\n"
      "  - verify: {request: a, rows: 3, accept: 1}\n  - decode: {requests: [a]}\n"
      "  - prefix_hit: {request: b, from: a, tokens: 128}\n  - free: a\n"
      "  - prefill: {request: b, tokens: 4}\n  - rewind: {request: b, to: 130}\n"
      "  - decode: {requests: [b]}\n  - preempt: b\n"
      "  - fill: {request: c, tokens: 10}\n  - decode: {requests: [c]}\n");
  const RunPlan run = plan(scenario);
  const std::vector<RunPlan> alone = sequential_of(scenario);
  REQUIRE(alone.size() == 3);

  REQUIRE(alone[0].steps.size() == 130);
  CHECK(alone[0].config.requests == run.config.requests);
  CHECK(alone[0].config.cache == run.config.cache);
  CHECK(alone[0].config.state_bases == 1);
  CHECK(alone[0].steps[0].rows.size() == 1);
  CHECK(alone[0].steps[0].rows[0].request == 0);
  CHECK(alone[0].steps[128].rows[0].content == content_id("a", 128, 0));
  CHECK(alone[0].steps[129].rows[0].content == content_id("a", 129, 1));  // behind the rejected row

  REQUIRE(alone[1].steps.size() == 131);
  CHECK(alone[1].steps[5].rows[0].request == 1);
  CHECK(alone[1].steps[5].rows[0].content == content_id("a", 5, 0));
  CHECK(alone[1].steps[128].rows[0].content == content_id("b", 128, 0));
  CHECK(alone[1].steps[130].rows[0].content == content_id("b", 130, 1));
  CHECK(alone[1].steps[130].live[0].length == 131);

  REQUIRE(alone[2].steps.size() == 2);
  CHECK(alone[2].steps[0].kind == StepKind::fill);
  CHECK(alone[2].steps[0].fill->request == 2);
  CHECK(alone[2].steps[1].rows[0].position == 10);
}

TEST_CASE("a name that was admitted twice runs twice") {
  const std::vector<RunPlan> alone = sequential_of(test::parse(
      "steps:\n  - prefill: {request: a, tokens: 2}\n  - free: a\n  - prefill: {request: a, tokens: 3}\n"));
  REQUIRE(alone.size() == 2);
  CHECK(alone[0].steps.size() == 2);
  CHECK(alone[1].steps.size() == 3);
  CHECK(alone[1].steps[0].rows[0].request == 1);
}

TEST_CASE("a request alone has pools of its own size") {
  // One chunk of 128 writes no open row of ratio 128; alone, one token a step, 128 of them lie in 16 pages.
  const Scenario scenario = test::parse(
      "model: {layers: [hca]}\ncache: {c128_state: paged, pages: {pool: 3}}\nsteps:\n"
      "  - prefill: {request: a, tokens: 128}\n");
  CHECK(plan(scenario).config.pool_pages[static_cast<std::size_t>(Pool::state_c128)] == 4);
  const std::vector<RunPlan> alone = sequential_of(scenario);
  CHECK(alone.front().config.pool_pages[static_cast<std::size_t>(Pool::state_c128)] == 17);
}

}  // namespace
}  // namespace dsv4::scenario
