// Digests, tensors, geometry, profiles and the stage catalogue.
#include <algorithm>
#include <set>
#include <string>

#include "model/digest.hpp"
#include "model/geometry.hpp"
#include "model/layout.hpp"
#include "model/profile.hpp"
#include "model/stage.hpp"
#include "model/step_plan.hpp"
#include "support/catch.hpp"

using namespace dsv4;

TEST_CASE("A digest is XXH3-128, high word first") {
  // Published value for no input.
  CHECK(digest(std::span<const std::byte>{}) == "99aa06d3014798d86001c324468d497f");
  Tensor bytes(DType::uint8, {3});
  CHECK(digest(bytes) == digest(bytes.bytes()));
  bytes.as<std::uint8_t>()[2] = 1;
  CHECK(digest(bytes) != digest(Tensor(DType::uint8, {3})));
}

TEST_CASE("NaN payloads never change a digest, other bits do") {
  Tensor a(DType::float32, {4});
  Tensor b(DType::float32, {4});
  a.as<std::uint32_t>()[1] = 0xFFC12345U;
  b.as<std::uint32_t>()[1] = 0x7F800001U;
  CHECK(digest(a) == digest(b));
  b.as<std::uint32_t>()[1] = 0x7F800000U;  // infinity is a number here
  CHECK(digest(a) != digest(b));
  canonicalise_nan(a);
  CHECK(a.as<std::uint32_t>()[1] == 0x7FC00000U);
  Tensor c(DType::bfloat16, {2});
  c.as<std::uint16_t>()[0] = 0xFF81;
  canonicalise_nan(c);
  CHECK(c.as<std::uint16_t>()[0] == 0x7FC0);
  Tensor d(DType::float8_e4m3fn, {2});
  d.as<std::uint8_t>()[0] = 0xFF;
  canonicalise_nan(d);
  CHECK(d.as<std::uint8_t>()[0] == 0xFF);
}

TEST_CASE("Tensors refuse views of another width and name their dtypes as files do") {
  Tensor t(DType::bfloat16, {2, 3});
  CHECK(t.elements() == 6);
  CHECK(t.row_elements() == 3);
  CHECK(t.bytes().size() == 12);
  CHECK_THROWS_AS(t.as<std::uint32_t>(), InternalError);
  for (const DType dtype : {DType::float4_e2m1fn, DType::float8_e4m3fn, DType::float8_e8m0fnu,
                            DType::bfloat16, DType::float32, DType::float64, DType::int32, DType::uint8}) {
    CHECK(dtype_from_name(name(dtype)) == dtype);
  }
  CHECK_THROWS_AS(dtype_from_name("float16"), FileError);
}

TEST_CASE("Presets hold their published shapes and check refuses what cannot be") {
  const Geometry pro = geometry_preset("v4-pro");
  CHECK(pro.dim == 7168);
  CHECK(pro.q_lora == 1536);
  CHECK(pro.heads == 128);
  CHECK(pro.o_groups == 16);
  CHECK(pro.index_topk == 1024);
  for (const std::string_view preset : geometry_presets()) check(geometry_preset(preset));
  CHECK_THROWS_AS(geometry_preset("v5"), UsageError);
  const auto refused = [](auto change) {
    Geometry g = geometry_preset("tiny");
    change(g);
    CHECK_THROWS_AS(check(g), UsageError);
  };
  refused([](Geometry& g) { g.dim = 100; });
  refused([](Geometry& g) { g.dim = 0; });
  refused([](Geometry& g) { g.q_lora = -128; });
  refused([](Geometry& g) { g.heads = 5; });
  refused([](Geometry& g) { g.index_topk = 0; });
  refused([](Geometry& g) { g.rope_theta = 0; });
  refused([](Geometry& g) {
    g.heads = 4096;
    g.q_lora = 1 << 20;
  });
}

TEST_CASE("Page pitches") {
  CHECK(layout::kv_page_bytes(64) == 37440);  // 64 * 584 = 37376, up to 65 * 576
  CHECK(layout::kv_page_bytes(2) == 1728);    // 1168 up to 3 * 576
  CHECK(layout::kv_page_bytes(72) == 72 * 584);
  CHECK(layout::index_page_bytes(64, false) == 8448);
  CHECK(layout::index_page_bytes(64, true) == 4352);
}

TEST_CASE("Profiles differ on the axes they name and refuse unknown ones") {
  const Profile canonical = profile_named("canonical");
  for (const AxisInfo& axis : axes()) CHECK(canonical.value(axis.axis) == axis.values.front());
  const Profile official = profile_named("official");
  std::set<std::string> changed;
  for (const AxisInfo& axis : axes()) {
    if (official.value(axis.axis) != canonical.value(axis.axis)) changed.emplace(axis.name);
  }
  CHECK(changed ==
        std::set<std::string>{"head_norm", "index_cache", "index_round", "select_order", "softmax"});
  CHECK(official.get<Softmax>() == Softmax::online64_bf16_p);
  CHECK(official.get<IndexCache>() == IndexCache::fp4);
  CHECK(profile_named("exact").exact);
  CHECK(profile_named("vllm-mxfp4").get<OutRotation>() == OutRotation::f32);
  CHECK(profile_named("sglang-fp8").get<IndexScale>() == IndexScale::f32);
  CHECK(profile_named("transformers").get<KvCache>() == KvCache::bf16);
  CHECK(profile_named("ggml").get<IndexCache>() == IndexCache::f16);
  Profile own = canonical;
  own.set("empty_lse", "minus_inf");
  CHECK(own.get<EmptyLse>() == EmptyLse::minus_inf);
  CHECK_THROWS_AS(own.set("empty_lse", "nan"), UsageError);
  CHECK_THROWS_AS(own.set("colour", "red"), UsageError);
  CHECK_THROWS_AS(profile_named("fast"), UsageError);
}

TEST_CASE("The catalogue names every tensor once, and stages run in an order their inputs allow") {
  std::set<std::string> paths;
  for (const TensorInfo& tensor : tensor_catalogue()) {
    CHECK(paths.insert(path(tensor.id)).second);
    CHECK(tensor_named(tensor.stage, tensor.name) == tensor.id);
    CHECK(&info(tensor.id) == &tensor);
  }
  for (const LayerKind kind : {LayerKind::swa, LayerKind::csa, LayerKind::hca}) {
    const auto order = execution_order(kind, false);
    const auto place = [&](Stage stage) {
      return std::find(order.begin(), order.end(), stage) - order.begin();
    };
    const auto end = static_cast<std::ptrdiff_t>(order.size());
    CHECK(place(Stage::layer_input) == 0);
    CHECK(place(Stage::output_project) == end - 1);
    if (kind != LayerKind::swa) {
      CHECK(place(Stage::compress_pool) <
            place(Stage::compress_state));  // pooling reads the state before the step
      CHECK(place(Stage::compress_finish) < place(Stage::attention_core));
    } else {
      CHECK(place(Stage::compress_pool) == end);
    }
    CHECK((place(Stage::indexer_score) != end) == (kind == LayerKind::csa));
    if (kind == LayerKind::csa) {
      CHECK(place(Stage::indexer_finish) < place(Stage::indexer_score));
      CHECK(place(Stage::indexer_pool) < place(Stage::indexer_state));
    }
    for (const Stage stage : execution_order(kind, true)) CHECK(place(stage) != end);
  }
}

TEST_CASE("Live rows by length") {
  for (std::int32_t n = 0; n < 600; ++n) {
    // Literally: the least position that some rule still needs.
    std::int32_t window = 0;
    while (window < n - 127) ++window;
    CHECK(first_live_window(n) == window);
    std::int32_t groups = 0;
    while (4 * (groups + 1) <= n) ++groups;
    CHECK(first_live_state(LayerKind::csa, n) == std::max(0, 4 * groups - 4));
    CHECK(live_entries(LayerKind::csa, n) == groups);
    CHECK(first_live_state(LayerKind::hca, n) == n - n % 128);
    CHECK(live_entries(LayerKind::hca, n) == (n - n % 128) / 128);
    CHECK(live_entries(LayerKind::swa, n) == 0);
  }
}
