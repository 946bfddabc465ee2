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
void compare(LayerKind kind, const char* profile, TensorId id) {
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
    compare(LayerKind::csa, profile, TensorId::compress_pooled);
    compare(LayerKind::csa, profile, TensorId::indexer_pooled);
    compare(LayerKind::hca, profile, TensorId::compress_pooled);
  }
}

TEST_CASE("profiles without kernel models are refused") {
  Harness harness(tiny_config({LayerKind::csa}, "ggml"));
  REQUIRE_THROWS_AS(cli::use_model_kernels(harness.engine(), seeded_weights(harness.plans.config)),
                    UsageError);
}
