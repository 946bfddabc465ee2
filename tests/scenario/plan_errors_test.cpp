// Impossible events: the place, the step's number and the value. Lines and columns were counted by hand.
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

/// The message for the last line of a script whose first line is `steps:` and second admits a with 200
/// tokens.
std::string error(const std::string& steps, const std::string& head = "") {
  return test::usage_error(
      [&] { plan(test::parse(head + "steps:\n  - prefill: {request: a, tokens: 200}\n" + steps)); });
}

TEST_CASE("requests that are not there, or there already") {
  CHECK(error("  - decode: {requests: [b]}\n") == "s.yaml:3:25: step 1: unknown request b");
  CHECK(error("  - verify: {request: b, rows: 2, accept: 1}\n") == "s.yaml:3:23: step 1: unknown request b");
  CHECK(error("  - free: b\n") == "s.yaml:3:11: step 1: unknown request b");
  CHECK(error("  - resume: a\n") == "s.yaml:3:13: step 1: request a is not preempted");
  CHECK(error("  - resume: b\n") == "s.yaml:3:13: step 1: unknown request b");
  CHECK(error("  - preempt: a\n  - preempt: a\n") ==
        "s.yaml:4:14: step 2: request a is preempted; resume it first");
  CHECK(error("  - preempt: a\n  - prefill: {request: a, tokens: 1}\n") ==
        "s.yaml:4:24: step 2: request a is preempted; resume it first");
  CHECK(error("  - preempt: a\n  - free: {request: a, keep: true}\n") ==
        "s.yaml:4:21: step 2: request a is preempted: it holds no pages to keep");
  CHECK(error("  - free: {request: a, keep: true}\n  - decode: {requests: [a]}\n") ==
        "s.yaml:4:25: step 2: request a was freed");
  CHECK(error("  - free: {request: a, keep: true}\n  - free: {request: a, keep: true}\n") ==
        "s.yaml:4:21: step 2: request a was freed already");
  CHECK(error("  - fill: {request: a, tokens: 5}\n") == "s.yaml:3:21: step 1: request a is admitted already");
  CHECK(error("  - batch: [{decode: {requests: [a]}}, {verify: {request: a, rows: 1, accept: 1}}]\n") ==
        "s.yaml:3:59: step 1: request a takes part twice in one step");
  CHECK(error("  - evict: {request: b, what: kept}\n") == "s.yaml:3:22: step 1: request b keeps no pages");
}

TEST_CASE("prefix hits of an illegal length or donor") {
  const auto hit = [](const std::string& from, int tokens, const std::string& head = "") {
    return error("  - prefix_hit: {request: b, from: " + from + ", tokens: " + std::to_string(tokens) + "}\n",
                 head);
  };
  CHECK(hit("a", 256) == "s.yaml:3:47: step 1: a prefix of 256 tokens is longer than the 200 of request a");
  CHECK(hit("a", 127) ==
        "s.yaml:3:47: step 1: a prefix of 127 tokens is not a multiple of 128, the run's largest ratio");
  CHECK(hit("a", 126, "model: {layers: [swa, csa]}\n") ==
        "s.yaml:4:47: step 1: a prefix of 126 tokens is not a multiple of 4, the run's largest ratio");
  CHECK(hit("a", 127, "model: {layers: [swa]}\n") == "no error");
  CHECK(hit("a", 124, "model: {layers: [csa]}\n") == "no error");
  CHECK(hit("c", 128) == "s.yaml:3:36: step 1: unknown request c");
  CHECK(error("  - prefix_hit: {request: a, from: a, tokens: 128}\n") ==
        "s.yaml:3:27: step 1: request a is admitted already");
}

TEST_CASE("lengths") {
  CHECK(error("  - rewind: {request: a, to: 201}\n") ==
        "s.yaml:3:30: step 1: cannot rewind request a to 201: it has 200 tokens");
  CHECK(error("  - rewind: {request: a, to: 200}\n") == "no error");
  CHECK(error("  - prefill: {request: a, tokens: 1048377}\n") ==
        "s.yaml:3:24: step 1: request a would grow to 1048577 tokens, more than 1048576");
}

TEST_CASE("snapshots and graphs") {
  CHECK(error("  - save: {request: a, as: s}\n  - save: {request: a, as: s}\n") ==
        "s.yaml:4:28: step 2: snapshot s exists already");
  CHECK(error("  - load: {request: b, from: s}\n") == "s.yaml:3:30: step 1: unknown snapshot s");
  CHECK(error("  - save: {request: a, as: s}\n  - load: {request: a, from: s}\n") ==
        "s.yaml:4:21: step 2: request a is admitted already");
  CHECK(error("  - replay_graph: {from: g, batch: [{pad: 1}]}\n") == "s.yaml:3:26: step 1: unknown graph g");
  CHECK(error("  - capture: {as: g, rows: 1}\n  - replay_graph: {from: g, batch: [{pad: 2}]}\n") ==
        "s.yaml:4:5: step 2: 2 rows do not fit the graph's 1");
}

TEST_CASE("synthetic tokens cannot be computed again") {
  const std::string fill = "  - fill: {request: f, tokens: 500}\n";
  const std::string fault = " again, but its first 500 tokens come from a fill and cannot be recomputed";
  CHECK(error(fill + "  - rewind: {request: f, to: 300}\n") ==
        "s.yaml:4:5: step 2: request f needs position 173 again, but its first 300 tokens come from a fill "
        "and cannot "
        "be recomputed");
  CHECK(error(fill + "  - preempt: f\n  - resume: f\n") ==
        "s.yaml:5:5: step 3: request f needs position 0" + fault);
  CHECK(error(fill + "  - decode: {requests: [f], repeat: 3}\n  - rewind: {request: f, to: 501}\n") ==
        "no error");
}

TEST_CASE("an empty pool names step, request and pool") {
  CHECK(error("  - prefill: {request: b, tokens: 130}\n", "cache: {pages: {pool: 5}}\n") ==
        "s.yaml:4:5: step 1: request b: pool window is empty, all of its 5 pages are held");
  CHECK(error("  - prefill: {request: b, tokens: 64}\n", "cache: {pages: {pool: 5}}\n") == "no error");
}

TEST_CASE("sizes that overflow") {
  CHECK(error("", "cache: {swa_page: 65536, pages: {pool: 1000000}}\n") ==
        "s.yaml: pool window of 1000001 pages has 65536065536 slots, more than 2^31 - 1");
}

}  // namespace
}  // namespace dsv4::scenario
