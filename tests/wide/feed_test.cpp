// The wide engine fed by the reference engine: each step inside a stage is judged on the leader's value of
// the step before, so codes differ by one step at most and only where the float64 value is within its bound
// of a rounding boundary; and what is gathered is the wide engine's own.
#include <algorithm>

#include "compare/comparator.hpp"
#include "model/seeded.hpp"
#include "oracle/lockstep.hpp"
#include "reference/engine.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"
#include "support/catch.hpp"
#include "wide/engine.hpp"

namespace dsv4::wide::test {
namespace {

using oracle::Feed;
using oracle::LiveSource;
using oracle::Lockstep;
using oracle::Runner;
using oracle::Selection;

RunPlan plan_of(const std::string& profile) {
  const std::string text = "model: {preset: tiny, layers: [csa]}\nseed: 23\nprofile: " + profile +
                           "\nsteps:\n"
                           "  - prefill: {request: a, tokens: 70}\n"
                           "  - decode: {requests: [a], repeat: 2}\n";
  return scenario::plan(scenario::parse_scenario(text, "test.yaml"));
}

std::unique_ptr<Engine> reference_engine(const RunPlan& plan) {
  return reference::make_reference_engine(plan.config, seeded_weights(plan.config),
                                          seeded_hidden(plan.config));
}
std::unique_ptr<Engine> wide_engine(const RunPlan& plan) {
  return make_wide_engine(plan.config, seeded_weights(plan.config), seeded_hidden(plan.config));
}

}  // namespace

TEST_CASE("codes are one step apart at most, where the value is at a rounding boundary", "[wide]") {
  for (const std::string profile : {"canonical", "official", "vllm-fp8", "vllm-mxfp4", "sglang-fp8",
                                    "sglang-fp4", "transformers", "ggml"}) {
    const RunPlan plan = plan_of(profile);
    const auto narrow = reference_engine(plan);
    const auto wide = wide_engine(plan);
    Runner narrow_runner(*narrow, Selection{});
    Runner wide_runner(*wide, Selection{});
    LiveSource subject(narrow_runner, plan, "");
    LiveSource reference(wide_runner, plan, "");
    Lockstep lockstep(subject, reference, Feed::reference);
    compare::CompareOptions options;
    options.fed = true;
    compare::Comparator comparator(reference.info(), subject.info(), compare::Rules(compare::RuleSet::values),
                                   options);
    std::int64_t own = 0;
    while (auto pair = lockstep.next()) {
      for (const compare::Comparison& one : comparator.compare(*pair->reference, pair->subject).comparisons) {
        INFO(profile << " step " << one.step << " " << one.stage << "/" << one.tensor);
        REQUIRE_FALSE(one.failed);
        REQUIRE(one.worst_code_steps.value_or(0) <= 1);
        REQUIRE(one.worst_ratio.value_or(0) <= 1);
        own += one.mismatches;
      }
    }
    REQUIRE(comparator.totals().steps == 3);
    REQUIRE(own > 0);  // the wide engine's values were judged, not what it was fed
  }
}

TEST_CASE("what a stage of the wide engine makes of fed values is computed from them", "[wide]") {
  const RunPlan plan = plan_of("canonical");
  const auto narrow = reference_engine(plan);
  const auto wide = wide_engine(plan);
  // A query of zeros has codes of zero, whatever its input; the wide engine's own query is not zero.
  StageFunction& entry = narrow->stages()[static_cast<std::size_t>(Stage::indexer_query)];
  entry = [inner = entry](const StageCall& call) {
    inner(call);
    Tensor zeros = *call.engine.tensor(call.layer, TensorId::query_entry);
    std::ranges::fill(zeros.bytes(), std::byte{0});
    call.engine.set_tensor(call.layer, TensorId::query_entry, std::move(zeros));
  };
  Runner narrow_runner(*narrow, Selection{});
  Runner wide_runner(*wide, Selection{});
  LiveSource subject(narrow_runner, plan, "");
  LiveSource reference(wide_runner, plan, "");
  Lockstep lockstep(subject, reference, Feed::reference);
  const auto pair = lockstep.next();
  const auto& tensors = pair->reference->layers[0].tensors;
  const auto zero = [](std::byte byte) { return (byte & std::byte{0x7F}) == std::byte{0}; };
  REQUIRE(std::ranges::all_of(tensors.at(TensorId::query_codes).bytes(), zero));
  REQUIRE_FALSE(std::ranges::all_of(tensors.at(TensorId::query_entry).bytes(), zero));
}

TEST_CASE("rows fed over those of the wide engine are no finding of the write-set check", "[wide]") {
  const RunPlan plan = plan_of("canonical");
  // The leader has other weights, so that all of its rows are other ones.
  RunConfig other = plan.config;
  other.seed = 24;
  const auto narrow =
      reference::make_reference_engine(plan.config, seeded_weights(other), seeded_hidden(plan.config));
  const auto wide = wide_engine(plan);
  Runner narrow_runner(*narrow, Selection{});
  Runner wide_runner(*wide, Selection{});
  wide_runner.check_writes();
  LiveSource reference(narrow_runner, plan, "");
  LiveSource subject(wide_runner, plan, "");
  Lockstep lockstep(subject, reference, Feed::reference);
  while (const auto pair = lockstep.next()) {
    REQUIRE(wide_runner.write_findings().empty());
    const auto& own = pair->subject.layers[0].writes;
    const auto& fed = pair->reference->layers[0].writes;
    REQUIRE(own.size() == fed.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < own.size(); ++i) different += own[i].bytes == fed[i].bytes ? 0 : 1;
    REQUIRE(different > 0);
  }
}

}  // namespace dsv4::wide::test
