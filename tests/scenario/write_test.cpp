// What is written plans like what was read: the whole library, and values that no script of it has.
#include <filesystem>

#include "scenario/support.hpp"
#include "scenario/write_yaml.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

bool same_plan(const RunPlan& a, const RunPlan& b) {
  const auto same_live = [](const LiveRequest& x, const LiveRequest& y) {
    return x.request == y.request && x.length == y.length && x.state_base == y.state_base &&
           *x.tables == *y.tables;
  };
  const auto same_share = [](const RequestStep& x, const RequestStep& y) {
    return x.request == y.request && x.first_row == y.first_row && x.begin == y.begin && x.end == y.end &&
           x.committed == y.committed && x.verify == y.verify && *x.tables == *y.tables;
  };
  const auto same_row = [](const Row& x, const Row& y) {
    return x.request == y.request && x.position == y.position && x.content == y.content;
  };
  const auto same_edit = [](const SeedEdit& x, const SeedEdit& y) {
    return x.tensor == y.tensor && x.layer == y.layer && x.rows == y.rows && x.columns == y.columns &&
           x.value == y.value && x.scale == y.scale;
  };
  const auto same_page = [](const PageRef& x, const PageRef& y) {
    return x.pool == y.pool && x.page == y.page;
  };
  const RunConfig& c = a.config;
  const RunConfig& d = b.config;
  if (!(c.geometry == d.geometry && c.profile == d.profile && c.layers == d.layers && c.chain == d.chain &&
        c.cache == d.cache && c.seed == d.seed && c.pool_pages == d.pool_pages && c.requests == d.requests &&
        c.state_bases == d.state_bases && std::ranges::equal(c.seed_edits, d.seed_edits, same_edit))) {
    return false;
  }
  return std::ranges::equal(a.steps, b.steps, [&](const StepPlan& x, const StepPlan& y) {
    return x.index == y.index && x.kind == y.kind && x.event == y.event &&
           std::ranges::equal(x.rows, y.rows, same_row) &&
           std::ranges::equal(x.requests, y.requests, same_share) &&
           std::ranges::equal(x.allocated, y.allocated, same_page) &&
           std::ranges::equal(x.released, y.released, same_page) &&
           std::ranges::equal(x.live, y.live, same_live);
  });
}

void check_round_trip(const Scenario& scenario) {
  INFO(scenario.name);
  const std::string written = write_yaml(scenario);
  INFO(written);
  const Scenario read = parse_scenario(written, scenario.file);
  CHECK(read.name == scenario.name);
  CHECK(read.description == scenario.description);
  CHECK(read.fault_class == scenario.fault_class);
  CHECK(read.expect.covers == scenario.expect.covers);
  CHECK(read.expect.same_as == scenario.expect.same_as);
  CHECK(read.model.checkpoint_layers == scenario.model.checkpoint_layers);
  CHECK(same_plan(plan(scenario), plan(read)));
  CHECK(write_yaml(read) == written);
}

TEST_CASE("every script of the repository, every run of its sweep, written and read again") {
  int runs = 0;
  for (const char* folder : {"scenarios", "tests/faults/scenarios"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() != ".yaml") continue;
      const std::vector<Scenario> all = expand(load_scenario(entry.path().string()));
      // Of long sweeps some runs; their events are the same.
      for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / 8), ++runs) {
        check_round_trip(all[i]);
      }
    }
  }
  CHECK(runs > 100);
}

TEST_CASE("every key, and names that YAML reads as something else") {
  check_round_trip(test::parse(R"(name: "a: 'b' # \"c\" \\ é"
description: "[not a list"
class: lifetime
model: {preset: v4-pro, layers: [hca, csa], layer: [7, 2], chain: true, heads: 32, o_groups: 8, eps: 0.0000011,
  rope_theta: 12345.678, compress_rope_theta: 1e5, yarn_factor: 8.5, yarn_original: 4096, beta_fast: 31.1,
  beta_slow: 1.25, dim: 256, q_lora: 128, o_lora: 256, index_heads: 2, index_topk: 3}
profile: {base: official, softmax: online64_bf16_p, linear: bf16}
seed: 18446744073709551615
cache: {swa_page: 3, c4_page: 5, c128_page: 7, index_page: 9, pages: {pool: 300, first: 290}, c4_state: page4align,
  c128_state: online, draft: 7, allocate: lifo, poison_freed: true, swa_release: never}
seeded:
  - {tensor: hidden, columns: [0, 4..9, 11], value: -inf}
  - {tensor: wq_a, layer: 1, rows: 3, scale: -12}
  - {tensor: attn_sink, value: 0.1}
trace:
  block: 16
  requests:
    "null": {tokens: 40, blocks: [3, 4, 9]}
    b: {tokens: 3, blocks: [9223372036854775807]}
steps:
  - prefill: {request: "null", tokens: 150}
  - prefill: {request: true, tokens: 2}
  - batch: [{prefill: {request: b, tokens: 3}}, {decode: {requests: [true, "null"]}}, {pad: 2}]
  - decode: {requests: [b, true], repeat: 4}
  - verify: {request: b, rows: 5, accept: 0}
  - rewind: {request: b, to: 2}
  - prefix_hit: {request: c, from: "null", tokens: 128}
  - save: {request: c, as: y}
  - load: {request: d, from: y, chunk: 100}
  - load: {request: e, from: y}
  - evict: {request: c, what: window}
  - decode: {requests: [c]}
  - free: {request: c, keep: true}
  - evict: {request: c, what: kept}
  - preempt: d
  - resume: {request: d, chunk: 50}
  - preempt: d
  - resume: d
  - free: d
  - poison: {what: freed, value: large}
  - poison: {what: unused}
  - fill: {request: f, tokens: 300}
  - capture: {as: g, rows: 4}
  - replay_graph: {from: g, batch: [{decode: {requests: [f]}}, {verify: {request: b, rows: 2, accept: 2}}]}
expect: {covers: [fill.synthetic], same_as: sequential}
)"));
  check_round_trip(test::parse("steps:\n  - batch: [{pad: 1}]\n"));
  check_round_trip(
      test::parse("cache: {pitch: 1152000}\nprofile: vllm-mxfp4\nsteps:\n  - batch: [{pad: 1}]\n"));
}

TEST_CASE("axes that were set behind a profile's name are written") {
  Scenario scenario = test::parse("profile: official\nsteps:\n  - batch: [{pad: 1}]\n");
  scenario.profile.set("linear", "bf16");
  const Scenario read = test::parse(write_yaml(scenario));
  for (const AxisInfo& axis : axes())
    CHECK(read.profile.value(axis.axis) == scenario.profile.value(axis.axis));
}

}  // namespace
}  // namespace dsv4::scenario
