#include "oracle/runner.hpp"

#include <unistd.h>

#include <cstdio>

#include "model/digest.hpp"
#include "oracle/checkpoint.hpp"
#include "oracle/lockstep.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

/// Paths of the tensors that differ between two observations.
std::vector<std::string> differing(const StepObservation& a, const StepObservation& b) {
  std::vector<std::string> names;
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    for (const auto& [id, tensor] : a.layers[layer].tensors) {
      if (digest(tensor) != digest(b.layers[layer].tensors.at(id))) names.push_back(path(id));
    }
  }
  return names;
}

}  // namespace

TEST_CASE("batch tables give the window slot of every row, padding is -1") {
  const RunPlan plan = test::plan_of(
      "swa", "  - prefill: {request: a, tokens: 65}\n  - batch: [{decode: {requests: [a]}}, {pad: 2}]\n");
  const BatchTables first = batch_tables(plan.config, plan.steps[0]);
  const BatchTables second = batch_tables(plan.config, plan.steps[1]);
  const auto tables = *plan.steps[1].requests[0].tables;
  const std::int32_t page = tables[static_cast<std::size_t>(Pool::window)][1];
  CHECK(first.position.as<std::int32_t>()[64] == 64);
  CHECK(first.slot.as<std::int32_t>()[64] == page * 64);
  CHECK(second.request.as<std::int32_t>()[0] == 0);
  CHECK(second.slot.as<std::int32_t>()[0] == page * 64 + 1);
  CHECK(second.page.as<std::int32_t>()[0] == page);
  for (const Tensor* table : {&second.request, &second.position, &second.slot, &second.page}) {
    CHECK(table->as<std::int32_t>()[1] == -1);
    CHECK(table->as<std::int32_t>()[2] == -1);
  }
}

TEST_CASE("stages run in execution order, layers ascending, hooks around them") {
  const RunPlan plan = test::plan_of("csa, swa", "  - prefill: {request: a, tokens: 5}\n");
  const auto engine = test::engine_of(plan);
  Runner runner(*engine, Selection{});
  std::vector<std::pair<int, Stage>> seen;
  std::vector<std::pair<int, Stage>> after;
  runner.run(plan.steps[0], {[&](int layer, Stage stage) { seen.emplace_back(layer, stage); },
                             [&](int layer, Stage stage) { after.emplace_back(layer, stage); }});
  std::vector<std::pair<int, Stage>> expected;
  for (const Stage stage : execution_order(LayerKind::csa, false)) expected.emplace_back(0, stage);
  for (const Stage stage : execution_order(LayerKind::swa, false)) expected.emplace_back(1, stage);
  CHECK(seen == expected);
  CHECK(after == expected);
}

TEST_CASE("an observation holds what is selected") {
  const RunPlan plan =
      test::plan_of("csa", "  - prefill: {request: a, tokens: 8}\n  - decode: {requests: [a]}\n");
  const auto engine = test::engine_of(plan);
  Runner runner(*engine, parse_selection(std::vector<std::string>{"compress.pool"}, {}, "1:2"));
  const StepObservation first = runner.run(plan.steps[0]);
  CHECK(first.layers[0].tensors.empty());
  CHECK(first.layers[0].state_digests.empty());
  const StepObservation second = runner.run(plan.steps[1]);
  CHECK(second.layers[0].tensors.size() == 3);
  CHECK(second.layers[0].state_digests.size() == 5);
}

TEST_CASE("a step whose engine throws keeps what it had published") {
  const RunPlan plan =
      test::plan_of("csa", "  - prefill: {request: a, tokens: 8}\n  - decode: {requests: [a]}\n");
  const auto wrong = test::engine_of(plan);
  wrong->stages()[static_cast<std::size_t>(Stage::indexer_score)] = [](const StageCall& call) {
    if (call.plan.index == 1) throw SubjectError("no more");
  };
  wrong->stages()[static_cast<std::size_t>(Stage::indexer_select)] = [](const StageCall&) {};
  wrong->stages()[static_cast<std::size_t>(Stage::attention_lists)] = [](const StageCall&) {};
  wrong->stages()[static_cast<std::size_t>(Stage::attention_core)] = [](const StageCall&) {};
  wrong->stages()[static_cast<std::size_t>(Stage::output_project)] = [](const StageCall&) {};
  for (const auto& [feed, late] :
       {std::pair{Feed::independent, false}, {Feed::independent, true}, {Feed::reference, false}}) {
    const auto reference = test::engine_of(plan);
    Runner reference_runner(*reference, Selection{});
    Runner runner(*wrong, Selection{});
    if (late) runner.gather_late();
    LiveSource leader(reference_runner, plan, "");
    LiveSource follower(runner, plan, "");
    Lockstep lockstep(follower, leader, feed);
    REQUIRE(lockstep.next());
    CHECK_FALSE(lockstep.broken_off());
    CHECK_THROWS_AS(lockstep.next(), SubjectError);
    const auto pair = lockstep.broken_off();
    REQUIRE(pair);
    CHECK(pair->subject.step == 1);
    CHECK(pair->reference->step == 1);
    CHECK(pair->subject.layers[0].tensors.contains(TensorId::query_codes));
    CHECK_FALSE(pair->subject.layers[0].tensors.contains(TensorId::scores));
    CHECK_FALSE(lockstep.broken_off());
  }
}

TEST_CASE("feeding confines a fault to its stage, running apart does not") {
  const RunPlan plan =
      test::plan_of("csa", "  - prefill: {request: a, tokens: 12}\n  - decode: {requests: [a], repeat: 2}\n");
  for (const Feed feed : {Feed::independent, Feed::reference}) {
    const auto good = test::engine_of(plan);
    const auto broken = test::engine_of(plan);
    test::break_stage(*broken, Stage::q_down, TensorId::q_latent);
    Runner good_runner(*good, Selection{});
    Runner broken_runner(*broken, Selection{});
    LiveSource reference(good_runner, plan, "");
    LiveSource subject(broken_runner, plan, "");
    Lockstep lockstep(subject, reference, feed);
    int steps = 0;
    while (auto pair = lockstep.next()) {
      const std::vector<std::string> names = differing(*pair->reference, pair->subject);
      if (feed == Feed::reference) {
        CHECK(names == std::vector<std::string>{"q.down/q_latent"});
        CHECK(pair->reference->layers[0].state_digests == pair->subject.layers[0].state_digests);
      } else {
        CHECK(names.size() > 3);  // q.up, attention and output inherit it
      }
      ++steps;
    }
    CHECK(steps == 3);
  }
}

TEST_CASE("a fault in a cache write is fed away too") {
  const RunPlan plan = test::plan_of(
      "hca", "  - prefill: {request: a, tokens: 127}\n  - decode: {requests: [a], repeat: 2}\n");
  const auto good = test::engine_of(plan);
  const auto broken = test::engine_of(plan);
  StageFunction& entry = broken->stages()[static_cast<std::size_t>(Stage::compress_state)];
  entry = [inner = entry](const StageCall& call) {
    inner(call);
    std::vector<Write> rows(call.engine.writes(call.layer).begin(), call.engine.writes(call.layer).end());
    std::erase_if(rows, [](const Write& write) { return write.cache != Cache::state; });
    for (Write& write : rows) write.bytes[1] ^= std::byte{0x40};
    call.engine.apply_writes(call.layer, rows);
  };
  Runner good_runner(*good, Selection{});
  Runner broken_runner(*broken, Selection{});
  LiveSource reference(good_runner, plan, "");
  LiveSource subject(broken_runner, plan, "");
  Lockstep lockstep(subject, reference, Feed::reference);
  while (auto pair = lockstep.next()) {
    CHECK(differing(*pair->reference, pair->subject).empty());
    CHECK(pair->reference->layers[0].state_digests == pair->subject.layers[0].state_digests);
  }
}

TEST_CASE("rows rebuilt from tensors are the rows that the engine wrote") {
  const RunPlan plan =
      test::plan_of("swa, csa, hca",
                    "  - prefill: {request: a, tokens: 130}\n"
                    "  - batch: [{decode: {requests: [a]}}, {prefill: {request: b, tokens: 9}}, {pad: 1}]\n"
                    "  - verify: {request: a, rows: 3, accept: 1}\n"
                    "  - rewind: {request: a, to: 70}\n",
                    ", chain: true");
  const auto engine = test::engine_of(plan);
  Runner runner(*engine, Selection{});
  int compared = 0;
  for (const StepPlan& step : plan.steps) {
    const StepObservation observation = runner.run(step);
    if (step.rows.empty()) continue;
    for (int layer = 0; layer < 3; ++layer) {
      const LayerKind kind = plan.config.layers[static_cast<std::size_t>(layer)];
      std::vector<Write> rebuilt;
      for (const Stage stage : execution_order(kind, step.kind == StepKind::restore)) {
        for (Write& write : writes_from_tensors(plan.config, step, layer, stage, observation))
          rebuilt.push_back(std::move(write));
      }
      const std::vector<Write>& written = observation.layers[static_cast<std::size_t>(layer)].writes;
      REQUIRE(rebuilt.size() == written.size());
      for (std::size_t i = 0; i < written.size(); ++i) {
        CHECK(rebuilt[i].stage == written[i].stage);
        CHECK(rebuilt[i].cache == written[i].cache);
        CHECK(rebuilt[i].slot == written[i].slot);
        CHECK(rebuilt[i].request == written[i].request);
        CHECK(rebuilt[i].index == written[i].index);
        CHECK(rebuilt[i].bytes == written[i].bytes);
        ++compared;
      }
    }
  }
  CHECK(compared > 200);
}

TEST_CASE("a checkpoint continues bit for bit, chained layers and restores included") {
  const RunPlan plan = test::plan_of("csa, hca",
                                     "  - prefill: {request: a, tokens: 140}\n"
                                     "  - prefill: {request: b, tokens: 7}\n"
                                     "  - rewind: {request: a, to: 60}\n"
                                     "  - decode: {requests: [a, b], repeat: 2}\n",
                                     ", chain: true");
  const auto whole = test::engine_of(plan);
  const std::vector<StepObservation> expected = test::run_all(*whole, plan);

  const std::string file = "/tmp/dsv4_checkpoint_test_" + std::to_string(getpid()) + ".h5";
  {
    const auto first = test::engine_of(plan);
    Runner runner(*first, Selection{});
    for (std::size_t step = 0; step < 2; ++step) runner.run(plan.steps[step]);
    write_checkpoint(file, *first, 2, "text", "test.yaml");
  }
  const CheckpointInfo info = read_checkpoint(file);
  CHECK(info.next_step == 2);
  CHECK(info.scenario == "text");
  CHECK(info.seed == 11);
  const auto second = test::engine_of(plan);
  restore_checkpoint(file, *second);
  std::remove(file.c_str());
  const std::vector<StepObservation> rest = test::run_all(*second, plan, 2);
  REQUIRE(rest.size() + 2 == expected.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(differing(expected[i + 2], rest[i]).empty());
    for (std::size_t layer = 0; layer < 2; ++layer) {
      CHECK(expected[i + 2].layers[layer].state_digests == rest[i].layers[layer].state_digests);
    }
  }
}

namespace {

/// Steps as a file gives them: no writes.
class Recorded : public ObservationSource {
 public:
  Recorded(SourceInfo info, std::vector<StepObservation> steps)
      : info_(std::move(info)), steps_(std::move(steps)) {
    for (StepObservation& step : steps_) {
      for (LayerObservation& layer : step.layers) layer.writes.clear();
    }
  }
  const SourceInfo& info() const override { return info_; }
  std::optional<StepObservation> next() override {
    if (next_ == steps_.size()) return std::nullopt;
    return steps_[next_++];
  }

 private:
  SourceInfo info_;
  std::vector<StepObservation> steps_;
  std::size_t next_ = 0;
};

}  // namespace

TEST_CASE("a dump is fed only into the batch and the caches that it is of") {
  const RunPlan plan = test::plan_of("csa", "  - prefill: {request: a, tokens: 9}\n");
  const auto recorder = test::engine_of(plan);
  const std::vector<StepObservation> steps = test::run_all(*recorder, plan);
  const auto feed = [&](const std::vector<StepObservation>& recorded) {
    const auto engine = test::engine_of(plan);
    Runner runner(*engine, Selection{});
    LiveSource live(runner, plan, "");
    Recorded file(live.info(), recorded);
    Lockstep lockstep(live, file, Feed::reference);
    while (lockstep.next()) {
    }
  };
  CHECK_NOTHROW(feed(steps));

  std::vector<StepObservation> moved = steps;
  moved[0].batch.position.as<std::int32_t>()[3] = 7;
  CHECK_THROWS_AS(feed(moved), UsageError);
  std::vector<StepObservation> unplaced = steps;
  unplaced[0].batch.slot = Tensor(DType::int32, {0});
  CHECK_THROWS_AS(feed(unplaced), UsageError);
  for (const std::int32_t slot : {-1, 1 << 20}) {
    std::vector<StepObservation> outside = steps;
    outside[0].layers[0].tensors.at(TensorId::compress_slot).as<std::int32_t>()[0] = slot;
    CHECK_THROWS_AS(feed(outside), UsageError);
  }
}
