// Stages of the wide engine on inputs whose results are known in closed form. The exact profile is used, so
// that nothing but float64 stands between a stage and its formula.
#include <limits>

#include "engine_support.hpp"
#include "support/catch.hpp"

namespace dsv4::wide::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using enum TensorId;

}  // namespace

TEST_CASE("attention over equal logits is the mean, weighed against the sink", "[wide]") {
  const RunConfig config = tiny({LayerKind::swa}, "exact");
  support::PlanBuilder builder(config);
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 3}});
  Run run(builder.config);
  run.before = [&](int layer, Stage stage) {
    if (stage == Stage::attention_core) run.set(layer, q, [](std::int64_t) { return 0.0; });
  };
  run.step(plan);
  const auto keys = run.values(0, window_kv);
  const auto out = run.values(0, attention_out);
  const auto lse = run.values(0, attention_lse);
  const auto weights = seeded_weights(config)->layer(0);
  for (std::size_t token = 0; token < 3; ++token) {
    const double n = static_cast<double>(token + 1);
    for (std::size_t head = 0; head < 4; ++head) {
      const double sink = std::exp(static_cast<double>(weights->attn_sink[head]));
      for (std::size_t c = 0; c < 512; ++c) {
        double sum = 0;
        for (std::size_t k = 0; k <= token; ++k) sum += keys[k * 512 + c];
        REQUIRE(near(out[(token * 4 + head) * 512 + c], sum / (n + sink)));
      }
      REQUIRE(near(lse[token * 4 + head], std::log(n)));
    }
  }
}

TEST_CASE("attention follows its logits", "[wide]") {
  const RunConfig config = tiny({LayerKind::swa}, "exact");
  support::PlanBuilder builder(config);
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 2}});
  Run run(builder.config);
  run.before = [&](int layer, Stage stage) {
    if (stage == Stage::attention_core)
      run.set(layer, q, [](std::int64_t i) { return i % 512 == 17 ? 2.0 : 0.0; });
  };
  run.step(plan);
  const auto keys = run.values(0, window_kv);
  const auto weights = seeded_weights(config)->layer(0);
  const double z0 = 2 * keys[17] / std::sqrt(512.0);
  const double z1 = 2 * keys[512 + 17] / std::sqrt(512.0);
  const double total = std::exp(z0) + std::exp(z1);
  REQUIRE(std::fabs(z0 - z1) > 1e-3);
  for (std::size_t head = 0; head < 4; ++head) {
    const double sink = std::exp(static_cast<double>(weights->attn_sink[head]));
    const double expected = (std::exp(z0) * keys[40] + std::exp(z1) * keys[512 + 40]) / (total + sink);
    REQUIRE(near(run.values(0, attention_out)[(4 + head) * 512 + 40], expected));
    REQUIRE(near(run.values(0, attention_lse)[4 + head], std::log(total)));
  }
}

TEST_CASE("a token without valid keys gives zero and an infinite lse", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::swa}));
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 2}});
  Run run(builder.config);
  run.before = [&](int layer, Stage stage) {
    if (stage != Stage::attention_core) return;
    Tensor slots = *run.engine->tensor(layer, window_slots);
    std::ranges::fill(slots.as<std::int32_t>(), -1);
    run.engine->set_tensor(layer, window_slots, std::move(slots));
  };
  run.step(plan);
  REQUIRE(
      std::ranges::all_of(run.values(0, attention_out), [](double x) { return x == 0 && !std::signbit(x); }));
  for (const double x : run.values(0, attention_lse)) REQUIRE(x == kInf);
}

TEST_CASE("the window list starts where the window does and counts slots of pages", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::swa}));
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 130}, {-1, 1}});
  Run run(builder.config);
  run.step(plan);
  const auto logical = run.values(0, window_logical);
  const auto slots = run.values(0, window_slots);
  const auto lengths = run.values(0, window_length);
  REQUIRE(logical[0] == 0);
  REQUIRE(logical[1] == -1);
  REQUIRE(logical[127 * 128] == 0);
  REQUIRE(logical[127 * 128 + 127] == 127);
  REQUIRE(logical[129 * 128] == 2);
  REQUIRE(logical[129 * 128 + 127] == 129);
  const auto& pages = (*plan.requests[0].tables)[static_cast<std::size_t>(Pool::window)];
  REQUIRE(slots[129 * 128] == pages[0] * 64 + 2);
  REQUIRE(slots[129 * 128 + 127] == pages[2] * 64 + 1);
  REQUIRE(lengths[4] == 5);
  REQUIRE(lengths[129] == 128);
  REQUIRE(lengths[130] == -1);
  REQUIRE(logical[130 * 128] == -1);
}

TEST_CASE("pooling over equal scores is the mean over both column halves", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::csa}, "exact"));
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 8}});
  const auto weights = seeded_weights(builder.config)->layer(0);
  Run run(builder.config);
  // kv[p][c] = 100 p + c; scores cancel the APE, except for row 6, own half, which gets log 3
  run.before = [&](int layer, Stage stage) {
    if (stage != Stage::compress_pool) return;
    run.set(layer, compress_kv, [](std::int64_t i) {
      return 100.0 * static_cast<double>(i / 1024) + static_cast<double>(i % 1024) / 1024;
    });
    run.set(layer, compress_score, [&](std::int64_t i) {
      const double ape = weights->compressor.ape[static_cast<std::size_t>(i / 1024 % 4 * 1024 + i % 1024)];
      return (i / 1024 == 6 && i % 1024 >= 512 ? std::log(3.0) : 0.0) - ape;
    });
  };
  run.step(plan);
  const auto pooled = run.values(0, compress_pooled);
  REQUIRE(pooled.size() == 2 * 512);
  for (std::size_t c = 0; c < 512; ++c) {
    const double older = static_cast<double>(c) / 1024;
    const double own = static_cast<double>(c + 512) / 1024;
    // entry 0: rows 0..3, their own half only
    REQUIRE(near(pooled[c], own + 150));
    // entry 1: rows 0..3 from the first half, rows 4..7 from the second, row 6 three times
    const double sum = 4 * older + 600 + 6 * own + 400 + 500 + 3 * 600 + 700;
    REQUIRE(near(pooled[512 + c], sum / 10));
  }
}

TEST_CASE("selection orders numbers, minus infinity, NaN; ties go to the lower index", "[wide]") {
  for (const bool descending : {false, true}) {
    RunConfig config = tiny({LayerKind::csa}, "exact");
    config.geometry.index_topk = 5;
    if (descending) config.profile.set("select_order", "descending");
    support::PlanBuilder builder(config);
    const int a = builder.admit("a");
    const StepPlan plan = builder.step({{a, 31}});
    Run run(builder.config);
    run.before = [&](int layer, Stage stage) {
      if (stage != Stage::indexer_select) return;
      const std::vector<double> row{kNaN, 1, -kInf, 3, 1, 3, -0.0};
      run.set(layer, scores, [&](std::int64_t i) { return row[static_cast<std::size_t>(i % 7)]; });
    };
    run.step(plan);
    const auto selected = run.values(0, TensorId::selected);
    const auto at = [&](std::size_t token) {
      return std::vector<double>(selected.begin() + static_cast<std::ptrdiff_t>(token) * 5,
                                 selected.begin() + static_cast<std::ptrdiff_t>(token) * 5 + 5);
    };
    // 7 entries visible: 3, 3, 1, 1, -0 win
    REQUIRE(at(30) == (descending ? std::vector<double>{3, 5, 1, 4, 6} : std::vector<double>{1, 3, 4, 5, 6}));
    // 3 entries visible: 1, then -inf, then NaN
    REQUIRE(at(11) ==
            (descending ? std::vector<double>{1, 2, 0, -1, -1} : std::vector<double>{0, 1, 2, -1, -1}));
    REQUIRE(at(2) == std::vector<double>(5, -1));
    REQUIRE(run.values(0, selected_count)[30] == 5);
    REQUIRE(run.values(0, selected_count)[11] == 3);
    REQUIRE(run.values(0, compressed_length)[11] == 3);
  }
}

TEST_CASE("index scores are weighted rectified products", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::csa}, "exact"));
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 9}});
  Run run(builder.config);
  run.before = [&](int layer, Stage stage) {
    if (stage != Stage::indexer_score) return;
    // head h looks at dim h, heads 2 and 3 with a minus sign
    run.set(layer, query_codes, [](std::int64_t i) {
      const std::int64_t head = i / 128 % 4;
      return i % 128 != head ? 0.0 : head < 2 ? 1.0 : -1.0;
    });
    run.set(layer, query_weights, [](std::int64_t i) { return std::pow(10.0, static_cast<double>(i % 4)); });
  };
  run.step(plan);
  const auto keys = run.values(0, indexer_entry);
  const auto scores_found = run.values(0, scores);
  REQUIRE(run.values(0, visible) == std::vector<double>{0, 0, 0, 1, 1, 1, 1, 2, 2});
  for (std::size_t entry = 0; entry < 2; ++entry) {
    double expected = 0;
    for (std::size_t head = 0; head < 4; ++head) {
      const double t = (head < 2 ? 1 : -1) * keys[entry * 128 + head];
      expected += std::max(t, 0.0) * std::pow(10.0, static_cast<double>(head));
    }
    REQUIRE(near(scores_found[8 * 2 + entry], expected));
  }
  REQUIRE(scores_found[6 * 2 + 1] == 0);  // not visible yet
}

TEST_CASE("the output turns heads back and feeds each group its own", "[wide]") {
  const RunConfig config = tiny({LayerKind::swa}, "exact");
  support::PlanBuilder builder(config);
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 2}});
  Run run(builder.config);
  run.before = [&](int layer, Stage stage) {
    // one dim of head 2, which group 1 reads as its first head
    if (stage == Stage::output_project) {
      run.set(layer, attention_out, [](std::int64_t i) { return i % 2048 == 2 * 512 + 10 ? 3.0 : 0.0; });
    }
  };
  run.step(plan);
  const auto weights = seeded_weights(config)->layer(0);
  const auto latent = run.values(0, o_latent);
  for (std::size_t n = 0; n < 256; ++n) {
    const double code = decoded([&] {
      Tensor one(DType::float8_e4m3fn, {1});
      one.as<std::uint8_t>()[0] = weights->wo_a.codes[n * 1024 + 10];
      return one;
    }())[0];
    const double scale = std::exp2(static_cast<double>(weights->wo_a.scales[n / 128 * 8]) - 127);
    REQUIRE(latent[n] == (n < 128 ? 0 : 3 * code * scale));
  }
}

TEST_CASE("values given before a stage are what the rest of the stage computes with", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::swa}));
  const int a = builder.admit("a");
  const StepPlan plan = builder.step({{a, 2}, {-1, 1}});
  Run run(builder.config);
  const auto give = [&](TensorId id, DType dtype, std::vector<std::int64_t> shape, std::uint8_t code) {
    Tensor tensor(dtype, std::move(shape));
    std::ranges::fill(tensor.as<std::uint8_t>(), code);
    run.engine->set_tensor(0, id, std::move(tensor));
  };
  run.before = [&](int layer, Stage stage) {
    if (stage == Stage::q_up) {
      Tensor raw(DType::bfloat16, {3, 4, 512});
      std::ranges::fill(raw.as<std::uint16_t>(), std::uint16_t{0xC040});  // -3
      run.engine->set_tensor(layer, q_raw, std::move(raw));
    }
    if (stage == Stage::output_project) {
      give(o_latent_codes, DType::float8_e4m3fn, {3, 256}, 0);
      give(o_latent_scales, DType::float8_e8m0fnu, {3, 2}, 127);
    }
  };
  run.step(plan);
  const auto normed = run.values(0, q_normed);
  REQUIRE(std::all_of(normed.begin(), normed.begin() + 2 * 2048, [](double x) { return x == -1; }));
  REQUIRE(run.values(0, q_raw)[0] != -3);  // its own value is still published
  REQUIRE(std::ranges::all_of(run.values(0, hidden_out), [](double x) { return x == 0; }));
  REQUIRE(std::ranges::any_of(run.values(0, o_latent), [](double x) { return x != 0; }));
}

TEST_CASE("padding rows are zero bytes and -1", "[wide]") {
  for (const std::string_view profile :
       {"canonical", "official", "exact", "sglang-fp8", "transformers", "ggml"}) {
    support::PlanBuilder builder(tiny({LayerKind::csa}, profile));
    const int a = builder.admit("a");
    const StepPlan plan = builder.step({{-1, 1}, {a, 9}, {-1, 2}});
    Run run(builder.config);
    run.step(plan);
    int seen = 0;
    for (const TensorInfo& tensor : tensor_catalogue()) {
      const Tensor* const published = run.engine->tensor(0, tensor.id);
      if (published == nullptr || !tensor.dims.starts_with("token")) continue;
      ++seen;
      REQUIRE(published->dim(0) == 12);
      const std::size_t row_bytes = published->bytes().size() / 12;
      const std::byte fill = tensor.dtype == DType::int32 ? std::byte{0xFF} : std::byte{0};
      for (const std::size_t row : {0, 10, 11}) {
        const auto bytes = published->bytes().subspan(row * row_bytes, row_bytes);
        REQUIRE(std::ranges::all_of(bytes, [&](std::byte byte) { return byte == fill; }));
      }
    }
    REQUIRE(seen > 15);
  }
}

TEST_CASE("axis values without a formula are refused", "[wide]") {
  for (const auto& [axis, value] : {std::pair{"list_order", "compressed_first"},
                                    std::pair{"out_rotation", "f32"}, std::pair{"arithmetic", "hopper"}}) {
    RunConfig config = tiny({LayerKind::swa});
    config.profile.set(axis, value);
    REQUIRE_THROWS_AS(make_wide_engine(config, seeded_weights(config), seeded_hidden(config)), UsageError);
  }
}

}  // namespace dsv4::wide::test
