/// Stages computed by kernel models: the same entries as the engine's own, other last bits, and a refusal
/// where there is no model.
#include "cli/model_kernels.hpp"

#include <cmath>

#include "model/error.hpp"
#include "reference/engine_harness.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

/// Both tensors of a run of 131 tokens and five more, with and without the models.
void with_and_without(LayerKind kind, const char* profile, TensorId id) {
  std::int64_t elements = 0;
  std::int64_t other_bits = 0;
  Harness plain(tiny_config({kind}, profile));
  Harness models(tiny_config({kind}, profile));
  cli::use_model_kernels(models.engine(), seeded_weights(models.plans.config));
  const int a = plain.admit("a");
  const int b = models.admit("a");
  for (const int tokens : {126, 2, 3, 5}) {
    plain.run(plain.plans.step({{a, tokens}}));
    models.run(models.plans.step({{b, tokens}}));
    const auto x = plain.engine().tensor(0, id)->as<float>();
    const auto y = models.engine().tensor(0, id)->as<float>();
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(std::fabs(x[i] - y[i]) <= 1e-5F * (1 + std::fabs(x[i])));
      other_bits += x[i] != y[i];
    }
    elements += static_cast<std::int64_t>(x.size());
  }
  REQUIRE(elements > 0);
  REQUIRE(other_bits > 0);
}

}  // namespace

TEST_CASE("pools by kernel models, rows from the step and from the state") {
  for (const char* profile : {"vllm-fp8", "sglang-fp8"}) {
    INFO(profile);
    with_and_without(LayerKind::csa, profile, TensorId::compress_pooled);
    with_and_without(LayerKind::csa, profile, TensorId::indexer_pooled);
    with_and_without(LayerKind::hca, profile, TensorId::compress_pooled);
  }
}

TEST_CASE("profiles without kernel models are refused") {
  Harness harness(tiny_config({LayerKind::csa}, "ggml"));
  REQUIRE_THROWS_AS(cli::use_model_kernels(harness.engine(), seeded_weights(harness.plans.config)),
                    UsageError);
}

TEST_CASE("hopper-exact needs a run with kernel models on one side") {
  SourceInfo plain;
  plain.engine = "reference";
  plain.config = tiny_config({LayerKind::csa}, "sglang-fp8");
  SourceInfo models = plain;
  models.engine += cli::kModelKernelsSuffix;
  REQUIRE_THROWS_AS(cli::make_rules("hopper-exact", true, plain, plain), UsageError);
  models.config.geometry.index_heads = 64;
  for (const auto& [a, b] : {std::pair{plain, models}, std::pair{models, plain}}) {
    const compare::Rules rules = cli::make_rules("hopper-exact", true, a, b);
    REQUIRE(rules.only_equal_on_same_inputs(TensorId::compress_pooled));
    REQUIRE(rules.only_equal_on_same_inputs(TensorId::indexer_pooled));
    REQUIRE(rules.only_equal_on_same_inputs(TensorId::scores));
    REQUIRE_FALSE(rules.only_equal_on_same_inputs(TensorId::compress_kv));
  }
  // Without a model of the scores, no bits of theirs.
  models.config.geometry.index_heads = 8;
  REQUIRE_FALSE(
      cli::make_rules("hopper-exact", true, plain, models).only_equal_on_same_inputs(TensorId::scores));
  models.config.geometry.index_heads = 64;
  models.config.profile = profile_named("vllm-mxfp4");
  REQUIRE_FALSE(
      cli::make_rules("hopper-exact", true, plain, models).only_equal_on_same_inputs(TensorId::scores));
  REQUIRE(cli::make_rules("", true, plain, plain).set() == compare::RuleSet::bits);
  REQUIRE(cli::make_rules("", false, plain, models).set() == compare::RuleSet::values);
  REQUIRE(cli::make_rules("values", true, plain, plain).set() == compare::RuleSet::values);
}
