/// Guards of the CUDA engine: bad indices, bad pages, broken canaries, and what a graph refuses. Exits 77
/// without a device.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "gpu/device_memory.cuh"
#include "gpu/engine.hpp"
#include "model/error.hpp"
#include "model/seeded.hpp"
#include "oracle/runner.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

using namespace dsv4;

namespace {

int failures = 0;

/// The message that `act` throws must hold every part of `parts`.
void expect_error(const char* what, const std::function<void()>& act, const std::vector<std::string>& parts) {
  std::string message = "nothing was thrown";
  bool good = false;
  try {
    act();
  } catch (const Error& error) {
    message = error.what();
    good = true;
  }
  for (const std::string& part : parts) good = good && message.find(part) != std::string::npos;
  std::printf("%s %s: %s\n", good ? "ok  " : "FAIL", what, message.c_str());
  failures += good ? 0 : 1;
}

RunPlan plan_of(const std::string& steps) {
  return scenario::plan(scenario::parse_scenario(
      "model: {preset: tiny, layers: [swa, csa, hca]}\nseed: 5\nsteps:\n" + steps, "guard.yaml"));
}

std::unique_ptr<Engine> engine_of(const RunPlan& plan, bool graphs = false) {
  return gpu::make_cuda_engine(plan.config, seeded_weights(plan.config), seeded_hidden(plan.config),
                               {0, graphs});
}

/// After `stage` of layer `layer` one element of an int32 tensor is another.
void replace_after(Engine& engine, int layer, Stage stage, TensorId id, std::size_t element,
                   std::int32_t value) {
  StageFunction& entry = engine.stages()[static_cast<std::size_t>(stage)];
  entry = [=, inner = entry](const StageCall& call) {
    inner(call);
    if (call.layer != layer) return;
    Tensor changed = *call.engine.tensor(layer, id);
    changed.as<std::int32_t>()[element] = value;
    call.engine.set_tensor(layer, id, std::move(changed));
  };
}

struct BadIndex {
  const char* what;
  int layer;
  Stage stage;
  TensorId id;
  std::size_t row;
  std::int32_t value;
  std::string message;
};

void bad_indices() {
  const RunPlan plan = plan_of("  - prefill: {request: a, tokens: 140}\n  - decode: {requests: [a]}\n");
  using enum TensorId;
  for (const BadIndex& bad : {
           BadIndex{"window slot", 0, Stage::attention_lists, window_slots, 7, 1 << 30,
                    "layer 0, attention.core: attention.lists/window row 7, item 2 is 1073741824"},
           BadIndex{"compressed slot of CSA", 1, Stage::attention_lists, compressed_slots, 139, -7,
                    "layer 1, attention.core: attention.lists/compressed row 139, item 2 is -7"},
           BadIndex{"compressed slot of HCA", 2, Stage::attention_lists, compressed_slots, 0, 1 << 20,
                    "layer 2, attention.core: attention.lists/compressed row 2, item 0 is 1048576"},
           BadIndex{"selected entry", 1, Stage::indexer_select, selected, 20, 99999,
                    "layer 1, attention.lists: indexer.select/selected row 20, item 2 is 99999"},
           BadIndex{"visible entries", 1, Stage::indexer_score, visible, 0, 1 << 29,
                    "layer 1, indexer.select: indexer.score/visible row 2, item 0 is 536870912"},
       }) {
    const auto engine = engine_of(plan);
    const bool one_wide = bad.id == visible || bad.layer == 2;  // HCA sees one entry
    Engine& e = *engine;
    StageFunction& entry = e.stages()[static_cast<std::size_t>(bad.stage)];
    const StageFunction before = entry;
    entry = [&, before](const StageCall& call) {
      before(call);
      if (call.layer != bad.layer) return;
      Tensor changed = *e.tensor(call.layer, bad.id);
      const auto width = static_cast<std::size_t>(changed.row_elements());
      changed.as<std::int32_t>()[one_wide ? 2 : bad.row * width + 2] = bad.value;
      e.set_tensor(call.layer, bad.id, std::move(changed));
    };
    oracle::Runner runner(e, oracle::Selection{});
    expect_error(bad.what, [&] { runner.run(plan.steps[0]); },
                 {"step 0 (guard.yaml:", bad.message, "outside -1.."});
    entry = before;
    runner.run(plan.steps[1]);  // the engine goes on
  }
}

void bad_page() {
  const RunPlan plan = plan_of("  - prefill: {request: a, tokens: 9}\n  - decode: {requests: [a]}\n");
  for (const Pool pool : {Pool::window, Pool::entries_c4, Pool::index}) {
    const auto engine = engine_of(plan);
    oracle::Runner runner(*engine, oracle::Selection{});
    runner.run(plan.steps[0]);
    StepPlan bad = plan.steps[1];
    auto tables = std::make_shared<BlockTables>(*bad.requests[0].tables);
    (*tables)[static_cast<std::size_t>(pool)][0] = 4711;
    bad.requests[0].tables = tables;
    expect_error("page", [&] { engine->begin_step(bad); },
                 {"page 4711 of pool " + std::string(name(pool)), "row 0"});
  }
}

void broken_canaries() {
  for (const bool before : {false, true}) {
    gpu::DeviceMemory memory;
    memory.get("bystander", 1000);
    auto* victim = static_cast<std::byte*>(memory.get("victim", 512));
    memory.get("zzz", 3);
    memory.verify_canaries(nullptr);
    if (cudaMemset(before ? victim - 2 : victim + 512 + 3, 0, 1) != cudaSuccess) ++failures;
    expect_error("canary", [&] { memory.verify_canaries(nullptr); },
                 {"device buffer 'victim' of 512 bytes", before ? "before its start" : "behind its end",
                  before ? "canary byte 510" : "canary byte 3"});
  }
}

void graph_refusals() {
  const RunPlan plan =
      plan_of("  - prefill: {request: a, tokens: 9}\n  - decode: {requests: [a], repeat: 2}\n");
  const auto engine = engine_of(plan, true);
  oracle::Runner runner(*engine, oracle::Selection{});
  runner.run(plan.steps[0]);
  runner.run(plan.steps[1]);
  oracle::StageHooks hooks;
  hooks.after = [&](int layer, Stage stage) {
    if (stage == Stage::q_up)
      engine->set_tensor(layer, TensorId::q, Tensor(*engine->tensor(layer, TensorId::q)));
  };
  expect_error("feeding a graph", [&] { runner.run(plan.steps[2], hooks); },
               {"step 2 (guard.yaml:", "runs through a captured graph"});
  const auto fresh = engine_of(plan, true);
  replace_after(*fresh, 0, Stage::attention_lists, TensorId::window_slots, 0, 1);
  oracle::Runner other(*fresh, oracle::Selection{});
  other.run(plan.steps[0]);
  expect_error("capturing an entry that needs the host", [&] { other.run(plan.steps[1]); },
               {"runs through a captured graph"});
}

}  // namespace

int main() {
  if (gpu::cuda_devices().empty()) {
    std::puts("no CUDA device");
    return 77;
  }
  bad_indices();
  bad_page();
  broken_canaries();
  graph_refusals();
  return failures == 0 ? 0 : 1;
}
