#include <limits>

#include "oracle/data_coverage.hpp"
#include "oracle/sequential.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

const char* const kSteps =
    "  - prefill: {request: a, tokens: 9}\n"
    "  - batch: [{prefill: {request: b, tokens: 5}}, {decode: {requests: [a]}}]\n"
    "  - verify: {request: a, rows: 3, accept: 1}\n"
    "  - decode: {requests: [b, a]}\n"
    "  - free: b\n"
    "  - rewind: {request: a, to: 8}\n"
    "  - prefill: {request: a, tokens: 3}\n";

compare::Totals sequential_totals(const std::string& text, const std::function<void(Engine&)>& change) {
  const scenario::Scenario scenario = scenario::parse_scenario(text, "test.yaml");
  const RunPlan plan = scenario::plan(scenario);
  const auto engine = test::engine_of(plan);
  change(*engine);
  Runner runner(*engine, Selection{});
  LiveSource source(runner, plan, text);
  SequentialCheck check(plan, source.info());
  for (const StepPlan& step : plan.steps) check.add(*engine, step, runner.run(step));
  check.finish(scenario::sequential_of(scenario), "reference", test::reference_factory(),
               seeded_weights(plan.config), seeded_hidden(plan.config));
  return check.totals();
}

compare::Totals check_sequential(const std::function<void(Engine&)>& change) {
  return sequential_totals(
      std::string("model: {preset: tiny, layers: [csa, swa]}\nseed: 3\nsteps:\n") + kSteps, change);
}

StepObservation scored(const std::vector<float>& scores, int visible,
                       const std::vector<std::int32_t>& selected) {
  StepObservation step;
  step.batch.request = Tensor(DType::int32, {1});
  step.layers.resize(1);
  Tensor score_tensor(DType::float32, {1, static_cast<std::int64_t>(scores.size())});
  std::ranges::copy(scores, score_tensor.as<float>().begin());
  Tensor visible_tensor(DType::int32, {1});
  visible_tensor.as<std::int32_t>()[0] = visible;
  Tensor selected_tensor(DType::int32, {1, static_cast<std::int64_t>(selected.size())});
  std::ranges::copy(selected, selected_tensor.as<std::int32_t>().begin());
  step.layers[0].tensors = {{TensorId::scores, score_tensor},
                            {TensorId::visible, visible_tensor},
                            {TensorId::selected, selected_tensor}};
  return step;
}

std::set<std::string> facts_of(const StepObservation& step) {
  DataCoverage coverage;
  coverage.add(step);
  return coverage.facts();
}

}  // namespace

TEST_CASE("a mixed run equals its requests run alone, by token and by live state") {
  const compare::Totals totals = check_sequential([](Engine&) {});
  CHECK(totals.passed());
  CHECK(totals.compared > 50);
}

TEST_CASE("state rows of tokens that a rewind replaced are not held against the run") {
  // Rows 2 to 4 are published before the rewind; what replaces them dies within one chunk that closes the
  // group.
  const std::string text =
      "model: {preset: tiny, layers: [hca]}\nseed: 3\nsteps:\n"
      "  - prefill: {request: a, tokens: 5}\n"
      "  - rewind: {request: a, to: 2}\n"
      "  - prefill: {request: a, tokens: 127}\n";
  CHECK(sequential_totals(text, [](Engine&) {}).passed());
}

TEST_CASE("a result that depends on the batch is found") {
  const compare::Totals totals = check_sequential([](Engine& engine) {
    StageFunction& entry = engine.stages()[static_cast<std::size_t>(Stage::q_down)];
    entry = [inner = entry](const StageCall& call) {
      inner(call);
      if (call.plan.rows.size() < 2) return;
      Tensor changed = *call.engine.tensor(call.layer, TensorId::q_latent);
      changed.bytes()[0] ^= std::byte{1};
      call.engine.set_tensor(call.layer, TensorId::q_latent, std::move(changed));
    };
  });
  CHECK_FALSE(totals.passed());
}

TEST_CASE("live state that depends on the batch is found even where no output shows it") {
  const compare::Totals totals = check_sequential([](Engine& engine) {
    StageFunction& entry = engine.stages()[static_cast<std::size_t>(Stage::output_project)];
    entry = [inner = entry](const StageCall& call) {
      inner(call);  // after the last stage of a layer: the state row of the last token changes
      if (call.layer != 0 || call.plan.rows.size() != 3) return;
      std::vector<Write> rows(call.engine.writes(0).begin(), call.engine.writes(0).end());
      std::erase_if(rows, [](const Write& write) { return write.cache != Cache::index_state; });
      rows.erase(rows.begin(), rows.end() - 1);
      rows[0].bytes[0] ^= std::byte{1};
      call.engine.apply_writes(0, rows);
    };
  });
  CHECK(totals.findings == 1);
}

TEST_CASE("facts that only numbers tell") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  CHECK(facts_of(scored({1, 2, 2, 0}, 4, {1, 2})).empty());  // two places: nothing left out is equal
  CHECK(facts_of(scored({1, 2, 2, 0}, 4, {1})) == std::set<std::string>{"select.tie_at_cut"});
  CHECK(facts_of(scored({1, 2, 2, 0}, 2, {1})).empty());  // the equal one is not visible
  CHECK(facts_of(scored({0.0F, -0.0F}, 2, {0})) == std::set<std::string>{"select.tie_at_cut"});
  CHECK(facts_of(scored({3, kNan, 1, 0}, 4, {0, 2})) ==
        std::set<std::string>{"select.nan_score", "value.nonfinite"});
  CHECK(facts_of(scored({3, 1, kNan}, 2, {0, 1})).empty());  // beyond `visible` nothing counts
  CHECK(facts_of(scored({3, kInf}, 2, {0, 1})) == std::set<std::string>{"value.nonfinite"});

  StepObservation step = scored({}, 0, {});
  Tensor codes(DType::float8_e4m3fn, {1, 2});
  codes.as<std::uint8_t>()[1] = 0xFE;
  Tensor scales(DType::float8_e8m0fnu, {1, 3});
  std::ranges::copy(std::vector<std::uint8_t>{120, 121, 105}, scales.as<std::uint8_t>().begin());
  step.layers[0].tensors = {{TensorId::window_codes, codes}, {TensorId::window_scales, scales}};
  CHECK(facts_of(step) ==
        std::set<std::string>{"quantize.exponents", "quantize.floor", "quantize.saturated"});
}
