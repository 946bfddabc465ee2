/// Every tensor of a prefill against a layer written as straight loops (literal_layer.hpp), bit for bit.
#include <algorithm>
#include <set>

#include "reference/engine_harness.hpp"
#include "reference/literal_layer.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

void compare(const RunConfig& config, int tokens) {
  const LayerKind kind = config.layers[0];
  Harness harness(config);
  const int request = harness.admit("a");
  const StepPlan plan = harness.plans.step({{request, tokens}});
  harness.run(plan);

  const auto weights = seeded_weights(harness.plans.config)->layer(0);
  const auto source = seeded_hidden(harness.plans.config);
  std::vector<std::vector<std::uint16_t>> hidden;
  for (const Row& row : plan.rows) {
    hidden.emplace_back(static_cast<std::size_t>(harness.plans.config.geometry.dim));
    source->hidden(0, row, hidden.back());
  }
  const LiteralTensors literal =
      literal_layer(kind, harness.plans.config.geometry, *weights, hidden, config.profile);

  // What says where rows lie, and the list that follows the selection, is tested elsewhere.
  const std::set<std::string> elsewhere{"layer.input/hidden", "attention.lists/compressed_length",
                                        "attention.lists/compressed_logical"};
  int compared = 0;
  for (const TensorInfo& info : tensor_catalogue()) {
    const Tensor* tensor = harness.engine().tensor(0, info.id);
    if (tensor == nullptr || places(info.id) || elsewhere.contains(path(info.id))) {
      if (!path(info.id).ends_with(".state/token")) continue;
    }
    if (tensor == nullptr || path(info.id).ends_with(".pool/index")) continue;
    INFO(path(info.id));
    const auto found = literal.find(path(info.id));
    REQUIRE(found != literal.end());
    const auto bytes = std::as_bytes(std::span(found->second));
    REQUIRE(std::ssize(tensor->bytes()) == std::ssize(bytes));
    const auto differs = std::ranges::mismatch(tensor->bytes(), bytes);
    const auto at = differs.in1 - tensor->bytes().begin();
    INFO("first differing byte " << at << " of " << bytes.size() << ", row "
                                 << at / (std::ssize(bytes) / tensor->dim(0)));
    REQUIRE(differs.in1 == tensor->bytes().end());
    ++compared;
  }
  REQUIRE(compared == static_cast<int>(literal.size()));
}

}  // namespace

TEST_CASE("a window-only layer equals the literal loops") {
  compare(tiny_config({LayerKind::swa}), 140);
}
TEST_CASE("a CSA layer equals the literal loops") {
  compare(tiny_config({LayerKind::csa}), 70);
}
TEST_CASE("an HCA layer equals the literal loops") {
  compare(tiny_config({LayerKind::hca}), 131);
}
TEST_CASE("official: layers equal the literal loops") {
  compare(tiny_config({LayerKind::csa}, "official"), 70);
  compare(tiny_config({LayerKind::hca}, "official"), 131);
}

TEST_CASE("profiles of other engines: layers equal the literal loops") {
  for (const char* profile :
       {"vllm-fp8", "vllm-mxfp4", "sglang-fp8", "sglang-fp4", "transformers", "ggml"}) {
    INFO(profile);
    compare(tiny_config({LayerKind::csa}, profile), 70);
    compare(tiny_config({LayerKind::hca}, profile), 131);
  }
}

TEST_CASE("every axis that the engine takes equals the literal loops") {
  const std::pair<const char*, const char*> changes[]{{"linear", "bf16"},
                                                      {"wo_a", "fp8_1x128"},
                                                      {"head_norm", "bf16"},
                                                      {"head_norm", "factor_bf16"},
                                                      {"rope_table", "bf16"},
                                                      {"rope_input", "f32"},
                                                      {"kv_cache", "e4m3_scale_floor"},
                                                      {"pooled_rounding", "f32"},
                                                      {"norm_weight", "round_then"},
                                                      {"index_rotation", "none"},
                                                      {"index_cache", "fp4"},
                                                      {"index_round", "bf16"},
                                                      {"select_order", "descending"},
                                                      {"softmax", "online64_bf16_p"},
                                                      {"sink_in_max", "yes"},
                                                      {"kv_cache", "bf16"},
                                                      {"kv_cache", "release_identity"},
                                                      {"kv_cache", "f16"},
                                                      {"pool", "f32_softmax_bf16_sum"},
                                                      {"index_cache", "none"},
                                                      {"index_cache", "f16"},
                                                      {"softmax", "bf16"},
                                                      {"list_order", "newest_first"},
                                                      {"q_rope_input", "f32"},
                                                      {"kv_row", "window_f32"},
                                                      {"kv_row", "f32"},
                                                      {"compress_project", "bf16"},
                                                      {"index_row", "key_f32"},
                                                      {"index_row", "f32"},
                                                      {"index_scale", "f32"},
                                                      {"activation_floor", "1e-10"}};
  for (const auto& [axis, value] : changes) {
    INFO(axis << " " << value);
    RunConfig config = tiny_config({LayerKind::csa});
    config.profile.set(axis, value);
    compare(config, 42);
  }
}
