// What is recomputed and what is kept, worked out by hand from docs/numerics.md 12.3 and 12.6.
#include "model/seeded.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

using test::planned;
using test::table;

std::string run_of(const std::string& layers, const std::string& steps, const std::string& cache = "") {
  return "model: {layers: [" + layers + "]}\ncache: {" + cache + "}\nsteps:\n" + steps;
}

const RequestStep& share(const RunPlan& run, std::size_t step) {
  REQUIRE(run.steps.at(step).kind == StepKind::restore);
  REQUIRE(run.steps.at(step).requests.size() == 1);
  return run.steps[step].requests[0];
}

TEST_CASE("rewind: the window pages that are gone") {
  const std::string steps = "  - prefill: {request: a, tokens: 700}\n  - rewind: {request: a, to: ";
  // At 700 the window starts at 573; pages 8 (512 .. 575) to 10 are held. At 600 it starts at 473.
  const RunPlan part = planned(run_of("swa", steps + "600}\n"));
  CHECK(share(part, 1).begin == 473);
  CHECK(share(part, 1).end == 512);
  CHECK(share(part, 1).committed == 600);
  CHECK(share(part, 1).from.window == 473);
  CHECK(part.steps[1].rows.front().position == 473);
  CHECK(part.steps[1].rows.front().content == content_id("a", 473, 0));
  CHECK(
      part.steps[1].event ==
      R"({"rewind":{"request":"a","to":600},"caused":{"discarded":100,"restored":[{"request":"a","begin":473,"end":512}]}})");
  CHECK(part.steps[1].live[0].length == 600);
  // At 640 the window is 513 .. 639, all there: page 10 goes back, nothing is computed.
  const RunPlan none = planned(run_of("swa", steps + "640}\n"));
  CHECK(none.steps[1].kind == StepKind::lifecycle);
  CHECK(none.steps[1].rows.empty());
  CHECK(none.steps[1].released.size() == 1);
  // At 512 nothing of 385 .. 511 is there.
  const RunPlan all = planned(run_of("swa", steps + "512}\n"));
  CHECK(share(all, 1).begin == 385);
  CHECK(share(all, 1).end == 512);
}

TEST_CASE("rewind: rows of a ratio-4 ring") {
  const std::string steps =
      "  - prefill: {request: a, tokens: 290}\n  - decode: {requests: [a], repeat: 10}\n"
      "  - rewind: {request: a, to: ";
  // The ring of 8 holds 292 .. 299. Live at 299 and 297: 292 on; at 295: 288 on, so 288 .. 291 are missing.
  CHECK(planned(run_of("csa", steps + "299}\n")).steps[11].kind == StepKind::lifecycle);
  CHECK(planned(run_of("csa", steps + "297}\n")).steps[11].kind == StepKind::lifecycle);
  const RunPlan run = planned(run_of("csa", steps + "295}\n"));
  CHECK(share(run, 11).begin == 288);
  CHECK(share(run, 11).end == 292);
  CHECK(share(run, 11).from.state_c4 == 288);
  CHECK(share(run, 11).from.state_index == 288);
  CHECK(share(run, 11).from.window == 295);
  CHECK(share(run, 11).from.entries_c4 == 73);
}

TEST_CASE("rewind: rows of a ratio-128 ring that no step ever wrote") {
  const RunPlan run =
      planned(run_of("hca", "  - prefill: {request: a, tokens: 290}\n  - rewind: {request: a, to: 200}\n"));
  // State rows 128 .. 199 are live at 200, the prefill wrote 256 .. 289 only. Window rows 73 .. 127 are gone.
  CHECK(share(run, 1).begin == 73);
  CHECK(share(run, 1).end == 200);
  CHECK(share(run, 1).from.window == 73);
  CHECK(share(run, 1).from.state_c128 == 128);
  CHECK(share(run, 1).from.entries_c128 == 1);
}

TEST_CASE("rejected rows are not taken for state") {
  // Ring of 16: rows 40 .. 44 of the verify step lie where 24 .. 28 were. Back at 41, live rows are 36 .. 40.
  const RunPlan run = planned(run_of("csa",
                                     "  - prefill: {request: a, tokens: 40}\n"
                                     "  - verify: {request: a, rows: 5, accept: 3}\n"
                                     "  - rewind: {request: a, to: 41}\n  - rewind: {request: a, to: 36}\n"));
  CHECK(run.steps[2].kind == StepKind::lifecycle);
  // At 36, rows 32 .. 35 are live; the prefill of 40 wrote 36 .. 39 only.
  CHECK(share(run, 3).begin == 32);
  CHECK(share(run, 3).end == 36);
}

TEST_CASE("prefix hit: window rows and the previous group") {
  const RunPlan run = planned(run_of("csa, hca",
                                     "  - prefill: {request: a, tokens: 200}\n"
                                     "  - prefix_hit: {request: b, from: a, tokens: 128}\n"));
  const RequestStep& hit = share(run, 1);
  CHECK(hit.request == 1);
  CHECK(hit.begin == 1);
  CHECK(hit.end == 128);
  CHECK(hit.from.window == 1);
  CHECK(hit.from.state_c4 == 124);
  CHECK(hit.from.state_index == 124);
  CHECK(hit.from.state_c128 == 128);  // the group of 128 is complete: no live row
  CHECK(hit.from.entries_c4 == 32);
  CHECK(hit.from.entries_c128 == 1);
  CHECK(run.steps[1].rows[0].request == 1);
  CHECK(run.steps[1].rows[0].content == content_id("a", 1, 0));
}

TEST_CASE("resume in chunks: each chunk leaves the state of its length") {
  const RunPlan run = planned(run_of("csa",
                                     "  - prefill: {request: a, tokens: 150}\n  - preempt: a\n"
                                     "  - resume: {request: a, chunk: 64}\n"));
  REQUIRE(run.steps.size() == 5);
  CHECK(run.steps[1].live.empty());
  const std::array<std::array<std::int32_t, 2>, 3> ranges{{{0, 64}, {64, 128}, {128, 150}}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(share(run, 2 + i).begin == ranges[i][0]);
    CHECK(share(run, 2 + i).end == ranges[i][1]);
    CHECK(share(run, 2 + i).committed == ranges[i][1]);
    CHECK(run.steps[2 + i].live[0].length == ranges[i][1]);
  }
  CHECK(share(run, 3).from.window == 64);
  CHECK(share(run, 3).from.state_c4 == 124);
  CHECK(share(run, 3).from.entries_c4 == 16);
}

TEST_CASE("resume in one step computes no more than it must") {
  const std::string steps = "  - prefill: {request: a, tokens: 300}\n  - preempt: a\n  - resume: a\n";
  CHECK(share(planned(run_of("swa", steps)), 2).begin == 173);
  const RunPlan csa = planned(run_of("csa", steps));
  CHECK(share(csa, 2).begin == 0);  // all entries are gone
  CHECK(share(csa, 2).from.window == 173);
  CHECK(share(csa, 2).from.state_c4 == 296);
  CHECK(share(csa, 2).from.entries_c4 == 0);
}

TEST_CASE("online C128 starts at the group, or goes on where a chunk ended") {
  const RunPlan rewound =
      planned(run_of("hca", "  - prefill: {request: a, tokens: 140}\n  - rewind: {request: a, to: 130}\n",
                     "c128_state: online"));
  CHECK(share(rewound, 1).begin == 128);
  CHECK(share(rewound, 1).end == 130);
  CHECK(share(rewound, 1).from.state_c128 == 128);
  CHECK(share(rewound, 1).from.window == 130);
  // At a multiple of 128 nothing is live.
  const RunPlan edge =
      planned(run_of("hca", "  - prefill: {request: a, tokens: 140}\n  - rewind: {request: a, to: 128}\n",
                     "c128_state: online"));
  CHECK(edge.steps[1].kind == StepKind::lifecycle);
  const RunPlan resumed = planned(run_of("hca",
                                         "  - prefill: {request: a, tokens: 133}\n  - preempt: a\n"
                                         "  - resume: {request: a, chunk: 50}\n",
                                         "c128_state: online"));
  CHECK(share(resumed, 2).from.state_c128 == 0);
  CHECK(share(resumed, 3).begin == 50);
  CHECK(share(resumed, 3).from.state_c128 == 50);
  CHECK(share(resumed, 4).begin == 100);
  CHECK(share(resumed, 4).end == 133);
  CHECK(share(resumed, 4).from.state_c128 == 100);
  CHECK(share(resumed, 4).from.entries_c128 == 0);
  // A rejected verify leaves the accumulator of the committed rows: nothing to do at the same length.
  const RunPlan verified = planned(run_of("hca",
                                          "  - prefill: {request: a, tokens: 140}\n"
                                          "  - verify: {request: a, rows: 4, accept: 2}\n"
                                          "  - rewind: {request: a, to: 142}\n",
                                          "c128_state: online"));
  CHECK(verified.steps[2].kind == StepKind::lifecycle);
}

TEST_CASE("evicted window pages come back before the next step of the request") {
  const RunPlan run =
      planned(run_of("csa",
                     "  - prefill: {request: a, tokens: 150}\n  - prefill: {request: b, tokens: 9}\n"
                     "  - evict: {request: a, what: window}\n  - decode: {requests: [b]}\n"
                     "  - decode: {requests: [b, a]}\n"));
  REQUIRE(run.steps.size() == 6);
  CHECK(run.steps[2].kind == StepKind::lifecycle);
  CHECK(run.steps[2].released.size() == 3);
  CHECK(table(run.steps[2].live[0], Pool::window).empty());
  CHECK(run.steps[3].kind == StepKind::compute);
  CHECK(share(run, 4).begin == 23);
  CHECK(share(run, 4).end == 150);
  CHECK(share(run, 4).from.window == 23);
  CHECK(share(run, 4).from.state_c4 == 150);
  CHECK(share(run, 4).from.entries_c4 == 37);
  CHECK(run.steps[4].source == "s.yaml:8");
  CHECK(run.steps[5].kind == StepKind::compute);
}

}  // namespace
}  // namespace dsv4::scenario
