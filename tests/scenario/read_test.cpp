// What a scenario says arrives in its fields.
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

TEST_CASE("every section of a scenario") {
  const Scenario s = test::parse(R"(name: all
description: words
model: {preset: v4-flash, layers: [swa, csa, hca, csa], chain: true, heads: 32, eps: 1e-5, window: 128}
profile: {base: official, softmax: two_pass}
seed: 7
cache: {swa_page: 32, c4_page: 16, c128_page: 4, index_page: 8, pages: {pool: 50}, c4_state: page4align,
        c128_state: online, draft: 4, allocate: lifo, poison_freed: true, swa_release: never, pitch: 576000}
hidden: in/h.h5
weights: [/w/a.safetensors, b.safetensors]
trace: {block: 8, requests: {a: {tokens: 9, blocks: [3, 5]}}}
steps:
  - prefill: {request: a, tokens: 9}
  - free: {request: a, keep: true}
expect: {covers: [window.partial], same_as: sequential}
)");
  CHECK(s.name == "all");
  CHECK(s.description == "words");
  CHECK(s.model.geometry.dim == 4096);
  CHECK(s.model.geometry.heads == 32);
  CHECK(s.model.geometry.eps == 1e-5F);
  CHECK(s.model.layers == std::vector{LayerKind::swa, LayerKind::csa, LayerKind::hca, LayerKind::csa});
  CHECK(s.model.checkpoint_layers == std::vector{0, 1, 2, 3});
  CHECK(s.model.chain);
  CHECK(s.profile.name == "official+softmax=two_pass");
  CHECK(s.profile.get<Softmax>() == Softmax::two_pass);
  CHECK(s.profile.get<IndexCache>() == IndexCache::fp4);
  CHECK(s.seed == 7);
  CHECK(s.cache.swa_page == 32);
  CHECK(s.cache.c4_page == 16);
  CHECK(s.cache.c128_page == 4);
  CHECK(s.cache.index_page == 8);
  CHECK(s.cache.pool_pages == 50);
  CHECK(s.cache.c4_state == C4State::page4align);
  CHECK(s.cache.c128_state == C128State::online);
  CHECK(s.cache.draft_rows == 4);
  CHECK(s.cache.allocate == Allocate::lifo);
  CHECK(s.cache.poison_freed);
  CHECK(s.cache.swa_release == SwaRelease::never);
  CHECK(s.cache.pitch == 576000);
  CHECK(s.hidden_path == "in/h.h5");
  CHECK(s.weights_paths == std::vector<std::string>{"/w/a.safetensors", "b.safetensors"});
  CHECK(s.trace.block == 8);
  CHECK(s.trace.requests.at("a").tokens == 9);
  CHECK(s.trace.requests.at("a").blocks == std::vector<std::int64_t>{3, 5});
  CHECK(s.steps.size() == 2);
  CHECK(std::get<Prefill>(s.steps[0].body).tokens.value == 9);
  CHECK(s.steps[1].mark.line == 13);
  CHECK(s.steps[1].mark.column == 5);
  CHECK(std::get<Free>(s.steps[1].body).keep);
  CHECK(s.expect.covers == std::vector<std::string>{"window.partial"});
  CHECK(s.expect.same_as == "sequential");
}

TEST_CASE("defaults") {
  const Scenario s = parse_scenario("steps: [{batch: [{pad: 2}]}]", "dir/some-name.yaml");
  CHECK(s.name == "some-name");
  CHECK(s.model.geometry == geometry_preset("tiny"));
  CHECK(s.model.layers == std::vector{LayerKind::swa, LayerKind::csa, LayerKind::hca});
  CHECK(s.profile == profile_named("canonical"));
  CHECK(s.seed == 0);
  CHECK(s.cache == CacheConfig{});
  CHECK(s.expect.same_as.empty());
}

TEST_CASE("paths are relative to the scenario's folder") {
  const std::string text = "hidden: ../h.h5\nsteps: [{batch: [{pad: 2}]}]";
  CHECK(parse_scenario(text, "/a/b/s.yaml").hidden_path == "/a/h.h5");
  CHECK(parse_scenario(text, "s.yaml").hidden_path == "../h.h5");
}

TEST_CASE("the default of draft is the widest verify step, wherever it stands") {
  CHECK(test::parse("steps: [{batch: [{verify: {request: a, rows: 6, accept: 1}}]}]").cache.draft_rows == 6);
  CHECK(test::parse("steps:\n  - verify: {request: a, rows: 3, accept: 1}\n"
                    "  - replay_graph: {from: g, batch: [{verify: {request: a, rows: 5, accept: 1}}]}")
            .cache.draft_rows == 5);
}

TEST_CASE("files that cannot be read") {
  CHECK_THROWS_AS(load_scenario("/no/such/file.yaml"), FileError);
  CHECK_THROWS_AS(load_scenario("/"), FileError);
}

}  // namespace
}  // namespace dsv4::scenario
