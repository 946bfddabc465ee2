#include "faults/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compare/comparator.hpp"
#include "model/seeded.hpp"
#include "oracle/faults/attention.hpp"
#include "oracle/faults/finish.hpp"
#include "oracle/faults/index.hpp"
#include "oracle/faults/pool.hpp"
#include "oracle/live_rows.hpp"
#include "oracle/runner.hpp"
#include "scenario/plan.hpp"

namespace dsv4::test {
namespace {

using namespace oracle;

/// Further parameters of faults that the catalogue shows with one set only.
const Case kVariants[]{
    {"pool-halves-swapped:compressor=indexer", "csa-8", "indexer.pool"},
    {"pool-absent-group-scores-zero:compressor=indexer", "csa-4", "indexer.pool"},
    {"pool-decode-ignores-previous:compressor=indexer", "csa-8-decode-4", "indexer.pool"},
    {"state-bias-from-chunk:compressor=indexer", "csa-5-then-3", "indexer.state"},
    {"state-in-bf16:compressor=indexer", "csa-4", "indexer.state"},
    {"state-next-slot:compressor=indexer", "csa-4", "indexer.state"},
    {"verify-keeps-last-rows:compressor=indexer", "verify-5-accept-2", "indexer.state"},
    {"entry-rotated-elsewhere:position=last", "csa-4", "compress.finish"},
    {"entry-rotated-elsewhere:compressor=indexer", "csa-8", "indexer.finish"},
    {"quantise-unrounded-scale:rows=entries", "csa-4", "compress.finish"},
    {"quantise-unrounded-scale:rows=index", "csa-4", "indexer.finish"},
    {"quantise-scale-rounded-down:rows=entries", "csa-4", "compress.finish"},
    {"quantise-scale-rounded-down:rows=index", "csa-4", "indexer.finish"},
    {"quantise-without-clamp:rows=entries", "csa-4", "compress.finish"},
    {"quantise-without-clamp:rows=index", "csa-4", "indexer.finish"},
    {"window-width:width=129", "swa-129", "attention.lists"},
    {"invalid-lane-read:as=last", "swa-2", "attention.core"},
    {"visible-one-too-many", "csa-6", "indexer.score"},
    {"bitflip:indexer.score/visible:3:4", "csa-4", "indexer.score"},  // more than there are: the engine stops
    {"stale-input:consumer=output.project", "swa-decode-2", "output.project"},
    {"quantise-unrounded-scale:rows=index", "csa-fp4-4", "indexer.finish"},
    {"quantise-scale-rounded-down:rows=index", "csa-fp4-4", "indexer.finish"},
    {"pool-halves-swapped", "csa-fp4-4", "compress.pool"},
    {"hadamard-dropped-on-key", "csa-fp4-4", "indexer.finish"},
    {"query-half-split", "csa-fp4-4", "indexer.query"},
    {"score-relu-after-sum", "csa-fp4-4", "indexer.score"},
};

std::string place(const compare::Comparison& one) {
  return fmt::format("step {} {}/{}", one.step, one.stage, one.tensor);
}

}  // namespace

std::vector<Case> fault_cases() {
  std::vector<Case> cases;
  for (const faults::FaultInfo& fault : faults::catalogue()) {
    if (!fault.verdict.empty()) continue;
    cases.push_back(
        {std::string(fault.name) + (fault.example.empty() ? "" : ":") + std::string(fault.example),
         std::string(fault.scenario), std::string(fault.reported)});
  }
  cases.insert(cases.end(), std::begin(kVariants), std::end(kVariants));
  return cases;
}

std::vector<Case> bit_flip_cases() {
  std::vector<Case> cases;
  for (const TensorInfo& tensor : tensor_catalogue()) {
    const bool online =
        tensor.id == TensorId::compress_state_max || tensor.id == TensorId::compress_state_sum;
    const auto order = execution_order(LayerKind::swa, false);
    const bool everywhere = std::ranges::find(order, tensor.stage) != order.end() &&
                            path(tensor.id).find("compressed") == std::string::npos;
    cases.push_back({"bitflip:" + path(tensor.id),
                     online       ? "online-verify"
                     : everywhere ? "swa-2"
                                  : "csa-8",
                     std::string(name(tensor.stage))});
  }
  return cases;
}

std::vector<Case> control_cases() {
  std::vector<Case> cases;
  for (const faults::FaultInfo& fault : faults::catalogue()) {
    if (fault.verdict.empty()) continue;
    cases.push_back(
        {std::string(fault.name) + (fault.example.empty() ? "" : ":") + std::string(fault.example),
         std::string(fault.scenario), std::string(fault.reported), std::string(fault.verdict)});
  }
  return cases;
}

std::vector<std::string> scenario_names() {
  std::set<std::string> names;
  for (const auto& cases : {fault_cases(), bit_flip_cases(), control_cases()}) {
    for (const Case& one : cases) names.insert(one.scenario);
  }
  return {names.begin(), names.end()};
}

Matrix::Matrix(std::string folder, std::string engine, EngineFactory factory)
    : folder_(std::move(folder)), engine_(std::move(engine)), factory_(std::move(factory)) {}

const World& Matrix::world(const std::string& name) {
  const auto [found, made] = worlds_.try_emplace(name);
  World& world = found->second;
  if (!made) return world;
  world.plan = scenario::plan(scenario::load_scenario(folder_ + "/" + name + ".yaml"));
  world.weights = seeded_weights(world.plan.config);
  world.hidden = seeded_hidden(world.plan.config);
  const auto engine = factory_("reference", world.plan.config, world.weights, world.hidden);
  Runner runner(*engine, Selection{});
  LiveSource source(runner, world.plan, "");
  world.info = source.info();
  while (auto step = source.next()) world.steps.push_back(std::move(*step));
  return world;
}

std::unique_ptr<faults::FaultyEngine> Matrix::subject(const World& world, const std::string& injection) {
  auto engine = factory_(engine_, world.plan.config, world.weights, world.hidden);
  if (injection.empty()) return std::make_unique<faults::FaultyEngine>(std::move(engine), world.weights);
  return faults::inject(std::move(engine), world.weights, faults::parse_injection(injection));
}

std::unique_ptr<Engine> Matrix::beside_until(const World& known, std::int64_t last) {
  auto engine = factory_("reference", known.plan.config, known.weights, known.hidden);
  Runner runner(*engine, Selection{});
  for (const StepPlan& plan : known.plan.steps) {
    if (plan.index <= last) runner.run(plan);
  }
  return engine;
}

Report Matrix::run_fault(const Case& one) {
  const World& known = world(one.scenario);
  const auto engine = subject(known, one.injection);
  Runner runner(*engine, Selection{});
  runner.check_writes();
  LiveSource source(runner, known.plan, "");
  compare::Comparator comparator(known.info, source.info(), compare::Rules(compare::RuleSet::bits));
  Report report;
  for (const StepObservation& reference : known.steps) {
    std::string stopped;
    StepObservation seen;
    try {
      seen = *source.next();
    } catch (const Error& error) {
      // What was published until then tells where it went wrong.
      if (!runner.broken_off()) throw;
      seen = std::move(*runner.broken_off());
      stopped = error.what();
    }
    compare::StepComparison step = comparator.compare(reference, seen);
    report.fired = engine->fired();
    const auto first = std::ranges::find_if(step.comparisons, [](const auto& c) { return c.failed; });
    if (first != step.comparisons.end()) {
      report.stage = first->stage;
      report.detail = place(*first) + (first->downstream ? " (downstream)" : "");
      if (!stopped.empty()) report.detail += ", then stopped: " + stopped;
      if (first->stage == "state") {
        const auto beside = beside_until(known, seen.step);
        locate_state_differences(*beside, *engine, known.plan.steps[static_cast<std::size_t>(seen.step)],
                                 step);
        if (!first->note.empty()) report.detail += ", " + first->note;
      }
      return report;
    }
    if (!stopped.empty()) {
      report.stage = "stopped";
      report.detail = stopped;
      return report;
    }
    if (!runner.write_findings().empty()) {
      report.stage = "writes";
      report.detail = fmt::format("step {} {}", seen.step, runner.write_findings().front().kind);
      return report;
    }
  }
  return report;
}

std::string Matrix::run_control(const Case& one, std::string& seen) {
  const World& known = world(one.scenario);
  const auto engine = subject(known, one.injection);
  Runner runner(*engine, Selection{});
  runner.check_writes();
  LiveSource source(runner, known.plan, "");
  compare::Comparator comparator(known.info, source.info(), compare::Rules(compare::RuleSet::values));
  bool met = false;
  for (const StepObservation& reference : known.steps) {
    const StepObservation observed = *source.next();
    for (const compare::Comparison& c : comparator.compare(reference, observed).comparisons) {
      if (c.verdict == compare::Verdict::equal) continue;
      if (c.failed) return place(c) + ": " + std::string(name(c.verdict)) + " " + c.note;
      if (seen.empty()) seen = fmt::format("{} {}", place(c), name(c.verdict));
      met |= c.stage == one.expected && name(c.verdict) == one.verdict;
    }
    if (!runner.write_findings().empty()) return runner.write_findings().front().message;
  }
  if (engine->fired() == 0) return "it changed nothing";
  return met ? "" : "no verdict " + one.verdict + " at " + one.expected + ", first " + seen;
}

double Matrix::score_error(const Case& one) {
  const World& known = world(one.scenario);
  const auto engine = subject(known, one.injection);
  Runner runner(*engine, Selection{});
  double difference = 0;
  double size = 0;
  for (std::size_t step = 0; step < known.steps.size(); ++step) {
    const StepObservation seen = runner.run(known.plan.steps[step]);
    for (std::size_t layer = 0; layer < seen.layers.size(); ++layer) {
      const auto& right = known.steps[step].layers[layer].tensors;
      const auto counts = right.at(TensorId::visible).as<std::int32_t>();
      for (std::size_t token = 0; token < counts.size(); ++token) {
        const auto row = static_cast<std::int64_t>(token);
        const auto a = faults::tensor_row<float>(right.at(TensorId::scores), row);
        const auto b = faults::tensor_row<float>(seen.layers[layer].tensors.at(TensorId::scores), row);
        for (std::size_t entry = 0; entry < static_cast<std::size_t>(counts[token]); ++entry) {
          difference += std::pow(double{b[entry]} - double{a[entry]}, 2);
          size += std::pow(double{a[entry]}, 2);
        }
      }
    }
  }
  return std::sqrt(difference / size);
}

std::string Matrix::run_clean(const std::string& scenario) {
  const World& known = world(scenario);
  const auto engine = subject(known, "");
  Runner runner(*engine, Selection{});
  runner.check_writes();
  LiveSource source(runner, known.plan, "");
  compare::Comparator comparator(known.info, source.info(), compare::Rules(compare::RuleSet::bits));
  for (const StepObservation& reference : known.steps) {
    const StepObservation seen = *source.next();
    comparator.compare(reference, seen);
    if (!runner.write_findings().empty()) return runner.write_findings().front().message;
  }
  const compare::Totals& totals = comparator.totals();
  if (totals.first_divergence) return place(*totals.first_divergence);
  return totals.nothing_compared() ? "nothing was compared" : "";
}

std::string Matrix::run_unchanged(const std::string& scenario) {
  const World& known = world(scenario);
  const auto engine = subject(known, "");
  faults::FaultyEngine& made = *engine;
  for (const TensorId id :
       {TensorId::query_entry, TensorId::compress_pool_request, TensorId::compress_pool_index,
        TensorId::indexer_pool_request, TensorId::indexer_pool_index}) {
    made.needs(id);
  }
  std::string first;
  // Whoever publishes other bits than the engine is named.
  const auto again = [&](Stage stage, const auto& compute) {
    made.after(stage, [&made, &first, stage, compute](const StageCall& call) {
      const std::int64_t before = made.fired();
      compute(call);
      if (made.fired() != before && first.empty()) {
        first = fmt::format("{} in step {}", name(stage), call.plan.index);
      }
    });
  };
  static constexpr faults::ParameterInfo kIndexer[]{{"compressor", "indexer", "indexer", 0, 0, ""}};
  static constexpr faults::ParameterInfo kMain[]{{"compressor", "main", "main", 0, 0, ""}};
  for (const std::span<const faults::ParameterInfo> which : {std::span(kMain), std::span(kIndexer)}) {
    const faults::CompressorStages& stages = faults::compressor_stages({"", which, ""});
    again(stages.pool, [&](const StageCall& call) { faults::repool(made, call, stages, {}); });
    again(stages.finish, [&](const StageCall& call) { faults::refinish(made, call, stages, {}); });
  }
  again(Stage::kv_window, [&](const StageCall& call) { faults::requantise_window(made, call, {}); });
  again(Stage::indexer_query, [&](const StageCall& call) { faults::remake_query(made, call, {}); });
  again(Stage::indexer_score, [&](const StageCall& call) { faults::rescore(made, call, {}); });
  again(Stage::attention_core, [&](const StageCall& call) { faults::reattend(made, call, {}); });
  again(Stage::output_project, [&](const StageCall& call) { faults::reproject(made, call, {}); });
  Runner runner(*engine, Selection{});
  for (const StepPlan& plan : known.plan.steps) runner.run(plan);
  return first;
}

}  // namespace dsv4::test
