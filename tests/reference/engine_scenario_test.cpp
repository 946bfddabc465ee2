/// Scripts with every event, planned with their pages: each committed token and all live state equal those of
/// a run in which its request is alone and nothing was ever discarded.
#include "reference/engine_harness.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

class Run : public Driver {
 public:
  explicit Run(const RunPlan& plan) : config_(plan.config) {
    for (const StepPlan& step : plan.steps) run(step);
  }
  const RunConfig& config() const override { return config_; }

 private:
  RunConfig config_;
};

void equals_sequential(const std::string& text) {
  const scenario::Scenario script = scenario::parse_scenario(text, "test.yaml");
  Run together(scenario::plan(script));
  std::size_t compared = 0;
  for (const RunPlan& alone_plan : scenario::sequential_of(script)) {
    Run alone(alone_plan);
    for (const auto& [key, bytes] : alone.tokens) {
      const auto found = together.tokens.find(key);
      if (found == together.tokens.end()) continue;  // a prefix hit computes no shared token
      INFO("layer " << std::get<0>(key) << " " << std::get<1>(key) << " " << std::get<2>(key) << ":"
                    << std::get<3>(key));
      if (found->second != bytes) FAIL("differs");
      ++compared;
    }
    for (const LiveRequest& request : alone.live) {
      if (std::ranges::find(together.live, request.request, &LiveRequest::request) == together.live.end())
        continue;
      INFO("state of " << alone.config().requests[static_cast<std::size_t>(request.request)]);
      REQUIRE(together.state(request.request) == alone.state(request.request));
    }
  }
  REQUIRE(compared > 1000);
  for (int layer = 0; layer < std::ssize(together.config().layers); ++layer) {
    const auto page = together.engine().read_row(layer, Cache::window, 0);
    REQUIRE(std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte{0xFF}; }));
  }
}

const std::string kEvents = R"(
steps:
  - prefill: {request: a, tokens: 37}
  - batch:
      - prefill: {request: b, tokens: 128}
      - decode: {requests: [a]}
      - pad: 4
  - decode: {requests: [a, b], repeat: 3}
  - verify: {request: a, rows: 4, accept: 1}
  - verify: {request: a, rows: 4, accept: 0}
  - preempt: a
  - decode: {requests: [b], repeat: 2}
  - resume: {request: a, chunk: 16}
  - prefix_hit: {request: c, from: b, tokens: 128}
  - batch:
      - prefill: {request: c, tokens: 9}
      - verify: {request: b, rows: 3, accept: 2}
      - decode: {requests: [a]}
  - save: {request: c, as: s1}
  - rewind: {request: c, to: 130}
  - decode: {requests: [c], repeat: 2}
  - load: {request: d, from: s1}
  - prefill: {request: d, tokens: 5}
  - evict: {request: b, what: window}
  - decode: {requests: [b, d]}
  - free: a
  - poison: {what: freed, value: nan}
  - prefill: {request: e, tokens: 150}
  - rewind: {request: e, to: 141}
  - decode: {requests: [b, c, d, e], repeat: 2}
)";

std::string script(const std::string& head) {
  return "name: t\nseed: 3\n" + head + kEvents;
}

}  // namespace

TEST_CASE("every event, ring state, chained") {
  equals_sequential(
      script("model: {preset: tiny, layers: [swa, csa, hca], chain: true}\n"
             "cache: {c4_state: ring, c128_state: ring, allocate: shuffled, poison_freed: true}\n"));
}
TEST_CASE("every event, paged state") {
  equals_sequential(
      script("model: {preset: tiny, layers: [csa, hca]}\n"
             "cache: {c4_state: paged, c128_state: paged, allocate: lifo, poison_freed: true}\n"));
}
TEST_CASE("every event, page4align and online state, official") {
  equals_sequential(
      script("model: {preset: tiny, layers: [csa, hca]}\nprofile: official\n"
             "cache: {c4_state: page4align, c128_state: online, allocate: lifo, poison_freed: true}\n"));
}
