// Whole runs of the wide engine: in the exact profile the result of a token depends on nothing but its
// prefix, up to float64 rounding, whatever the chunks, the form of the state and the pages.
#include <map>
#include <tuple>

#include "engine_support.hpp"
#include "support/catch.hpp"

namespace dsv4::wide::test {
namespace {

/// Layer, tensor, request, position (entries: their last position), values.
using Results = std::map<std::tuple<int, TensorId, int, int>, std::vector<double>>;

void gather(const Run& run, const StepPlan& plan, Results& results) {
  for (int layer = 0; layer < std::ssize(run.engine->config().layers); ++layer) {
    const int r = ratio(run.engine->config().layers[static_cast<std::size_t>(layer)]);
    for (const TensorId id :
         {TensorId::q, TensorId::window_kv, TensorId::attention_out, TensorId::hidden_out}) {
      const auto values = run.values(layer, id);
      const std::size_t width = values.size() / plan.rows.size();
      for (std::size_t row = 0; row < plan.rows.size(); ++row) {
        if (plan.rows[row].request < 0) continue;
        results[{layer, id, plan.rows[row].request, plan.rows[row].position}] = {
            values.begin() + static_cast<std::ptrdiff_t>(row * width),
            values.begin() + static_cast<std::ptrdiff_t>((row + 1) * width)};
      }
    }
    if (r == 0) continue;
    const auto entries = run.values(layer, TensorId::compress_entry);
    const auto indices = run.values(layer, TensorId::compress_index);
    const auto requests = run.values(layer, TensorId::compress_request);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const int last = (static_cast<int>(indices[i]) + 1) * r - 1;
      results[{layer, TensorId::compress_entry, static_cast<int>(requests[i]), last}] = {
          entries.begin() + static_cast<std::ptrdiff_t>(i * 512),
          entries.begin() + static_cast<std::ptrdiff_t>((i + 1) * 512)};
    }
  }
}

double worst_difference(const Results& a, const Results& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [key, values] : a) {
    const auto& other = b.at(key);
    double scale = 0;
    for (const double x : values) scale = std::max(scale, std::fabs(x));
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::fabs(values[i] - other[i]) / scale);
  }
  return worst;
}

RunConfig all_kinds(std::string_view profile) {
  RunConfig config = tiny({LayerKind::swa, LayerKind::csa, LayerKind::hca}, profile);
  config.chain = true;
  config.cache.poison_freed = true;
  return config;
}

}  // namespace

TEST_CASE("chunks, batches, state forms and pages do not change an exact result", "[wide]") {
  Results at_once;
  {
    support::PlanBuilder builder(all_kinds("exact"));
    const int a = builder.admit("a");
    const StepPlan plan = builder.step({{a, 140}});
    Run run(builder.config);
    run.step(plan);
    gather(run, plan, at_once);
  }
  struct Form {
    C4State c4;
    C128State c128;
  };
  for (const Form form : {Form{C4State::ring, C128State::ring}, Form{C4State::paged, C128State::paged},
                          Form{C4State::page4align, C128State::online}}) {
    RunConfig config = all_kinds("exact");
    config.cache.c4_state = form.c4;
    config.cache.c128_state = form.c128;
    config.cache.draft_rows = 4;
    support::PlanBuilder builder(config);
    builder.from_top = true;
    const int a = builder.admit("a");
    const int b = builder.admit("b");
    std::vector<StepPlan> plans;
    plans.push_back(builder.step({{a, 3}, {b, 2}}));
    plans.push_back(builder.step({{b, 5}, {-1, 2}, {a, 50}}));
    plans.push_back(builder.step({{a, 1}, {b, 1}}));
    plans.push_back(builder.step({{a, 4, 4}}));
    plans.push_back(builder.step({{a, 70}}));
    plans.push_back(builder.step({{a, 3, 3}, {b, 4, 0}}));
    while (builder.length(a) < 140) plans.push_back(builder.step({{a, 1}}));
    Run run(builder.config);
    Results results;
    for (const StepPlan& plan : plans) {
      run.step(plan);
      gather(run, plan, results);
    }
    std::erase_if(results, [&](const auto& item) { return std::get<2>(item.first) != a; });
    REQUIRE(worst_difference(at_once, results) < 1e-11);
  }
}

TEST_CASE("a restored request goes on as if nothing had happened", "[wide]") {
  for (const C128State form : {C128State::ring, C128State::online}) {
    Results straight;
    Results restored;
    for (const bool drop : {false, true}) {
      RunConfig config = all_kinds("exact");
      config.cache.c128_state = form;
      support::PlanBuilder builder(config);
      const int a = builder.admit("a");
      std::vector<StepPlan> plans{builder.step({{a, 133}})};
      if (drop) {
        plans.push_back(builder.drop(a));
        plans.push_back(builder.restore(a, 0, 133));
      }
      plans.push_back(builder.step({{a, 5}}));
      Run run(builder.config);
      for (const StepPlan& plan : plans) {
        run.step(plan);
        if (plan.kind == StepKind::compute) gather(run, plan, drop ? restored : straight);
      }
    }
    REQUIRE(worst_difference(straight, restored) < 1e-11);
  }
}

TEST_CASE("verify commits the accepted bank and leaves rejected ones", "[wide]") {
  RunConfig config = tiny({LayerKind::hca});
  config.cache.c128_state = C128State::online;
  config.cache.draft_rows = 3;
  support::PlanBuilder builder(config);
  const int a = builder.admit("a");
  Run run(builder.config);
  run.step(builder.step({{a, 5}}));
  const auto bank = [&](int number) { return run.engine->read_row(0, Cache::state, number); };
  const auto committed = bank(0);
  run.step(builder.step({{a, 3, 0}}));
  REQUIRE(bank(0) == committed);
  REQUIRE(bank(1) != committed);
  run.step(builder.step({{a, 3, 2}}));
  REQUIRE(bank(0) == bank(2));
  REQUIRE(bank(0) != bank(3));
  for (const Write& write : run.engine->writes(0)) {
    REQUIRE((write.cache != Cache::state || write.slot != 0));  // the commit is no stage's write
  }
}

TEST_CASE("freed pages and bases are poisoned, the null page stays", "[wide]") {
  RunConfig config = tiny({LayerKind::csa});
  config.cache.poison_freed = true;
  support::PlanBuilder builder(config);
  const int a = builder.admit("a");
  Run run(builder.config);
  const StepPlan plan = builder.step({{a, 9}});
  run.step(plan);
  const auto page = (*plan.requests[0].tables)[static_cast<std::size_t>(Pool::window)][0];
  const auto all_poison = [&](Cache cache, std::int64_t row) {
    const auto bytes = run.engine->read_row(0, cache, row);
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xFF}; });
  };
  REQUIRE_FALSE(all_poison(Cache::window, page));
  REQUIRE_FALSE(all_poison(Cache::state, 0));
  run.step(builder.drop(a));
  REQUIRE(all_poison(Cache::window, page));
  REQUIRE(all_poison(Cache::state, 0));
  REQUIRE(all_poison(Cache::window, 0));
}

TEST_CASE("every rounded tensor has values and bounds, of its own shape", "[wide]") {
  for (const std::string_view profile : {"canonical", "official"}) {
    support::PlanBuilder builder(all_kinds(profile));
    const int a = builder.admit("a");
    const StepPlan plan = builder.step({{a, 130}, {-1, 1}});
    Run run(builder.config);
    run.step(plan);
    for (int layer = 0; layer < 3; ++layer) {
      for (const TensorInfo& tensor : tensor_catalogue()) {
        const Tensor* const published = run.engine->tensor(layer, tensor.id);
        if (published == nullptr || tensor.dtype == DType::int32 || tensor.dtype == DType::uint8) continue;
        if (tensor.id == TensorId::hidden && layer == 0) continue;  // an input
        INFO(path(tensor.id));
        const Tensor* const values = run.engine->unrounded(layer, tensor.id);
        const Tensor* const bounds = run.engine->bound(layer, tensor.id);
        REQUIRE((values != nullptr && bounds != nullptr));
        REQUIRE(values->shape() == published->shape());
        REQUIRE(bounds->shape() == published->shape());
        REQUIRE(
            std::ranges::all_of(bounds->as<double>(), [](double x) { return x >= 0 && std::isfinite(x); }));
        if (tensor.dtype != DType::bfloat16) continue;
        const auto rounded = decoded(*published);
        std::size_t far = 0;
        for (std::size_t i = 0; i < rounded.size(); ++i) {
          far += std::fabs(rounded[i] - values->as<double>()[i]) > 0x1p-8 * std::fabs(rounded[i]) + 1e-38 ? 1
                                                                                                          : 0;
        }
        REQUIRE(far == 0);
      }
    }
  }
}

TEST_CASE("exact publishes float64 and no codes", "[wide]") {
  support::PlanBuilder builder(tiny({LayerKind::csa}, "exact"));
  const int a = builder.admit("a");
  Run run(builder.config);
  run.step(builder.step({{a, 9}}));
  REQUIRE_FALSE(run.engine->info().byte_state);
  REQUIRE_FALSE(run.engine->info().bit_exact);
  for (const TensorInfo& tensor : tensor_catalogue()) {
    const Tensor* const published = run.engine->tensor(0, tensor.id);
    const bool narrow = tensor.dtype == DType::uint8 || tensor.dtype == DType::float8_e8m0fnu ||
                        (tensor.dtype == DType::float8_e4m3fn && tensor.id != TensorId::query_codes) ||
                        tensor.id == TensorId::query_scales || tensor.id == TensorId::indexer_scales;
    INFO(path(tensor.id));
    if (narrow) REQUIRE(published == nullptr);
    if (published != nullptr && tensor.dtype != DType::int32) REQUIRE(published->dtype() == DType::float64);
    REQUIRE(run.engine->unrounded(0, tensor.id) == nullptr);
  }
}

}  // namespace dsv4::wide::test
