#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compare/comparator.hpp"
#include "oracle/explain/judge.hpp"
#include "oracle/lockstep.hpp"

namespace dsv4::oracle::explain {

std::optional<Isolation> Judge::isolate() const {
  const std::optional<Stage> stage = stage_named(first_->stage);
  if (!stage) return std::nullopt;
  RunPlan plan = bench_.plan(bench_.profile);
  auto engine = bench_.engine("reference", plan.config, bench_.weights, bench_.hidden);
  // Rows that are put in place are no writes of the engine: its write set says nothing here.
  Walk walk(std::move(engine), std::move(plan), {false, false});
  compare::CompareOptions options;
  options.wanted = [this](int, TensorId id) { return bench_.compared.has_tensor(id); };
  compare::Comparator comparator(walk.info(), foreign_.info(), bench_.rules, options);
  Isolation isolation;
  std::size_t at = 0;
  while (at < steps_.size() && walk.upcoming() != nullptr) {
    const RecordedStep& known = steps_[at];
    const StepPlan& step = *walk.upcoming();
    if (step.index != known.index) {
      walk.next();
      continue;
    }
    ++at;
    const StepObservation& foreign = known.foreign.observation;
    StageHooks hooks;
    hooks.after = [&](int layer, Stage ran) {
      if (ran != *stage) return;
      const LayerObservation& source = foreign.layers.at(static_cast<std::size_t>(layer));
      for (const auto& [id, tensor] : source.tensors) {
        if (dsv4::info(id).stage == ran) walk.engine().set_tensor(layer, id, tensor);
      }
      std::vector<Write> rows;
      if (source.writes.empty()) {
        rows = writes_from_tensors(walk.engine().config(), step, layer, ran, foreign);
      } else {
        std::ranges::copy_if(source.writes, std::back_inserter(rows),
                             [&](const Write& write) { return write.stage == ran; });
      }
      if (!rows.empty()) walk.replace_rows(layer, rows);
    };
    SeenStep seen;
    try {
      seen = walk.next(std::move(hooks));
    } catch (const UsageError&) {
      return std::nullopt;  // the foreign run does not hold the rows that the stage wrote
    }
    if (known.index < first_->step) continue;
    const compare::StepComparison comparison = comparator.compare(seen.observation, foreign);
    for (const compare::Comparison& one : comparison.comparisons) {
      if (one.stage == first_->stage || (one.stage == "state" && one.tensor == "writes")) continue;
      ++isolation.total;
      isolation.equal += one.failed ? 0 : 1;
      if (one.failed && isolation.first_left.empty())
        isolation.first_left = fmt::format("{}/{} of step {}", one.stage, one.tensor, one.step);
    }
    isolation.stopped = seen.stopped;
  }
  return isolation;
}

}  // namespace dsv4::oracle::explain
