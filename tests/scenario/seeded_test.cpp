// `seeded:`, `class:` and `pages: {first: F}`: what is read, written back, planned and refused.
#include <limits>

#include "scenario/coverage.hpp"
#include "scenario/support.hpp"
#include "scenario/write_yaml.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

const std::string kSteps = "steps: [{prefill: {request: a, tokens: 9}}]\n";

TEST_CASE("edits are read, planned and written back") {
  const Scenario scenario = test::parse(
      "class: sink\nseeded:\n  - {tensor: attn_sink, value: -inf}\n"
      "  - {tensor: wq_b, layer: 1, rows: [3, 8..10], columns: 5, scale: -7}\n"
      "  - {tensor: hidden, columns: 1..2, value: 0.1}\n" +
      kSteps);
  CHECK(scenario.fault_class == "sink");
  const auto check = [](const std::vector<SeedEdit>& edits) {
    REQUIRE(edits.size() == 3);
    CHECK(edits[0].tensor == "attn_sink");
    CHECK(edits[0].value == -std::numeric_limits<float>::infinity());
    CHECK(edits[0].rows.empty());
    CHECK_FALSE(edits[0].layer.has_value());
    CHECK(edits[1].layer == 1);
    CHECK(edits[1].rows == std::vector<std::int64_t>{3, 8, 9, 10});
    CHECK(edits[1].columns == std::vector<std::int64_t>{5});
    CHECK(edits[1].scale == -7);
    CHECK_FALSE(edits[1].value.has_value());
    CHECK(edits[2].columns == std::vector<std::int64_t>{1, 2});
    CHECK(edits[2].value == 0.1F);
  };
  check(scenario.seed_edits);
  const RunPlan run = plan(scenario);
  check(run.config.seed_edits);
  CHECK(plan_coverage(run).contains("seeded.edited"));
  const Scenario again = test::parse(write_yaml(scenario));
  check(again.seed_edits);
  CHECK(again.fault_class == "sink");
}

TEST_CASE("edits and classes that make no sense are refused with a place") {
  const auto refused = [](const std::string& text) {
    return test::usage_error([&] { test::parse(text + kSteps); });
  };
  CHECK(refused("class: sinks\n").starts_with("s.yaml:1:8: class must be one of verify, lifetime, "));
  CHECK(refused("seeded: [{tensor: attn_sink}]\n") ==
        "s.yaml:1:10: an edit takes either value or scale, an exponent of two");
  CHECK(refused("seeded: [{tensor: attn_sink, value: 1, scale: 1}]\n") ==
        "s.yaml:1:10: an edit takes either value or scale, an exponent of two");
  CHECK(refused("seeded: [{tensor: kv_norm, columns: 512, value: 1}]\n") ==
        "s.yaml:1:10: kv_norm: column 512 is beyond the 512 of layer 0");
  CHECK(refused("seeded: [{tensor: kv_norm, columns: 9..3, value: 1}]\n")
            .starts_with("s.yaml:1:37: columns must be 9 to "));
  CHECK(refused("seeded: [{tensor: kv_norm, scale: 121}]\n") ==
        "s.yaml:1:35: scale must be -120 to 120, not 121");
  CHECK(refused("seeded: [{tensor: kv_norm, value: nan}]\n") ==
        "s.yaml:1:35: value must be a finite decimal number, not 'nan'");
  CHECK(refused("weights: w.safetensors\nseeded: [{tensor: kv_norm, value: 1}]\n") ==
        "s.yaml:2:9: kv_norm comes from a file and is not seeded");
}

TEST_CASE("a pool may start at a high page and goes round") {
  const RunPlan run = test::planned(
      "model: {layers: [swa]}\ncache: {swa_page: 4, swa_release: never, pages: {pool: 100, first: 99}}\n" +
      kSteps);
  CHECK(test::table(run.steps.front().live.front(), Pool::window) == std::vector<std::int32_t>{99, 100, 1});
  CHECK(run.config.pool_pages[0] == 101);
  const Scenario scenario = test::parse("cache: {pages: {pool: 100, first: 99}}\n" + kSteps);
  CHECK(test::parse(write_yaml(scenario)).cache.first_page == 99);
  CHECK(test::usage_error([] { test::parse("cache: {pages: {pool: 5, first: 6}}\n" + kSteps); }) ==
        "s.yaml:1:33: first must be 1 to 5, not 6");
  CHECK(test::usage_error([] {
          test::parse("cache: {pages: {pool: 5, first: 2}, allocate: shuffled}\n" + kSteps);
        }) == "s.yaml:1:16: pages takes first only where pages are not shuffled");
}

}  // namespace
}  // namespace dsv4::scenario
