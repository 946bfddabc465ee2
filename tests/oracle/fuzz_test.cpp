// That fuzz and shrink would notice: wrong engines are found, and shrunk to the steps that it takes; right
// ones are not reported.
#include "oracle/fuzz.hpp"

#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

/// The reference with an entry of its stage table replaced: a change of what the stage published.
template <class Change>
TrialTools wrong_tools(Stage stage, Change change) {
  TrialTools tools = seeded_tools(test::reference_factory());
  tools.fault = [stage, change](std::unique_ptr<Engine> engine, const std::shared_ptr<const WeightSource>&) {
    StageFunction& entry = engine->stages()[static_cast<std::size_t>(stage)];
    entry = [inner = entry, change](const StageCall& call) {
      inner(call);
      change(call);
    };
    return engine;
  };
  return tools;
}

std::vector<FuzzFailure> failures(const TrialTools& tools, const std::string& pair, std::uint64_t count,
                                  std::size_t most = 1) {
  FuzzOptions options;
  options.seed = 5;
  options.count = count;
  options.most_failures = most;
  options.shrink_seconds = 60;
  std::vector<FuzzFailure> found;
  FuzzEvents events;
  events.failed = [&](const FuzzFailure& failure) { found.push_back(failure); };
  fuzz(options, {trial_pair(pair)}, tools, events);
  return found;
}

/// Window lists without their last row where the length is 3 more than a multiple of 128, and more than 128.
void drop_last_row(const StageCall& call) {
  Tensor slots = *call.engine.tensor(call.layer, TensorId::window_slots);
  Tensor lengths = *call.engine.tensor(call.layer, TensorId::window_length);
  for (std::size_t row = 0; row < call.plan.rows.size(); ++row) {
    const std::int32_t length = call.plan.rows[row].position + 1;
    if (length < 128 || length % 128 != 3) continue;
    std::int32_t& count = lengths.as<std::int32_t>()[row];
    slots.as<std::int32_t>()[row * kWindow + static_cast<std::size_t>(--count)] = -1;
  }
  call.engine.set_tensor(call.layer, TensorId::window_slots, std::move(slots));
  call.engine.set_tensor(call.layer, TensorId::window_length, std::move(lengths));
}

/// The last window row that a resumed request gets back is another one.
void spoil_resumed_window(const StageCall& call) {
  if (call.plan.kind != StepKind::restore || call.plan.event.find("resume") == std::string::npos) return;
  if (call.engine.writes(call.layer).empty()) return;
  Write row = call.engine.writes(call.layer).back();
  row.bytes[0] ^= std::byte{1};
  call.engine.apply_writes(call.layer, {&row, 1});
}

}  // namespace

TEST_CASE("a window that loses its last row is found and shrunk to the step that shows it") {
  for (const char* pair : {"reference:reference", "ring:paged", "sequential"}) {
    INFO(pair);
    const std::vector<FuzzFailure> found =
        failures(wrong_tools(Stage::attention_lists, drop_last_row), pair, 200);
    REQUIRE(found.size() == 1);
    const Divergence& first = found.front().divergence;
    CHECK(first.stage == "attention.lists");
    CHECK(first.same_signature(found.front().smallest.divergence));
    const scenario::Shrunk& shrunk = found.front().smallest.shrunk;
    INFO(shrunk.scenario.text);
    CHECK(shrunk.at_fixpoint);
    const RunPlan plan = scenario::plan(shrunk.scenario);
    CHECK(plan.steps.size() <= 3);
    CHECK(plan.config.layers.size() == 1);
    CHECK(plan.steps.back().live.front().length == 131);
  }
}

TEST_CASE("a fault of one event is found in the state behind it and keeps that event") {
  const std::vector<FuzzFailure> found =
      failures(wrong_tools(Stage::kv_window, spoil_resumed_window), "reference:reference", 200);
  REQUIRE(found.size() == 1);
  const scenario::Shrunk& shrunk = found.front().smallest.shrunk;
  INFO(found.front().smallest.divergence.sentence);
  INFO(shrunk.scenario.text);
  CHECK(shrunk.at_fixpoint);
  CHECK(scenario::plan(shrunk.scenario).steps.size() == 3);
  CHECK(shrunk.scenario.text.find("  - resume: {request: ") != std::string::npos);
  CHECK(shrunk.scenario.text.find("tokens: 1}") != std::string::npos);
}

TEST_CASE("the same seed finds the same; another start is another scenario") {
  const TrialTools tools = wrong_tools(Stage::q_up, [](const StageCall& call) {
    Tensor q = *call.engine.tensor(call.layer, TensorId::q);
    if (q.dim(0) == 7) q.bytes()[0] ^= std::byte{1};
    call.engine.set_tensor(call.layer, TensorId::q, std::move(q));
  });
  const auto one = failures(tools, "reference:reference", 200);
  const auto two = failures(tools, "reference:reference", 200);
  REQUIRE(one.size() == 1);
  REQUIRE(two.size() == 1);
  CHECK(one.front().index == two.front().index);
  CHECK(one.front().smallest.shrunk.scenario.text == two.front().smallest.shrunk.scenario.text);
  CHECK(one.front().divergence.sentence == two.front().divergence.sentence);
}

TEST_CASE("an engine that breaks off is a failure") {
  const TrialTools tools = wrong_tools(Stage::q_down, [](const StageCall& call) {
    if (call.plan.rows.size() > 4) throw SubjectError("an illegal access");
  });
  const auto found = failures(tools, "reference:reference", 20);
  REQUIRE(found.size() == 1);
  CHECK(found.front().divergence.signature() == "engine error");
  CHECK(scenario::plan(found.front().smallest.shrunk.scenario).steps.front().rows.size() == 5);
}

TEST_CASE("what made a device fail for good is kept as it is") {
  auto lost = std::make_shared<bool>(false);
  const TrialTools tools = wrong_tools(Stage::q_down, [lost](const StageCall& call) {
    *lost = *lost || call.plan.rows.size() > 4;
    if (*lost) throw SubjectError("an illegal access");
  });
  const auto found = failures(tools, "reference:reference", 20);
  REQUIRE(found.size() == 1);
  CHECK_FALSE(found.front().smallest.shrunk.at_fixpoint);
  CHECK(found.front().smallest.shrunk.scenario.text == found.front().scenario.text);
}

TEST_CASE("pairs are engines, cache forms or sequential") {
  CHECK(trial_pair("ring:page4align").subject.c4_state == C4State::page4align);
  CHECK(trial_pair("reference:wide").feed == Feed::reference);
  CHECK(trial_pair("sequential", "cuda").subject.engine == "cuda");
  for (const char* wrong : {"ring", "ring:", ":ring", "ring:reference", ""}) {
    INFO(wrong);
    CHECK_THROWS_AS(trial_pair(wrong), UsageError);
  }
}
