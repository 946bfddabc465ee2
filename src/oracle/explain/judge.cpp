#include "oracle/explain/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compare/comparator.hpp"
#include "model/element.hpp"
#include "oracle/lockstep.hpp"

namespace dsv4::oracle::explain {
namespace {

constexpr const char* kWrites = "writes";    // stage of findings
constexpr const char* kStopped = "stopped";  // stage of an engine that broke off

using FindingKey = std::tuple<int, std::string, int, std::int64_t, std::int64_t, std::int64_t>;

std::vector<FindingKey> keys_of(const std::vector<compare::Finding>& findings) {
  std::vector<FindingKey> keys;
  for (const compare::Finding& one : findings) {
    keys.emplace_back(one.layer, one.kind, one.cache ? static_cast<int>(*one.cache) : -1,
                      one.page.value_or(-1), one.offset.value_or(-1), one.byte.value_or(-1));
  }
  std::ranges::sort(keys);
  return keys;
}

/// Findings that only one of two runs has.
std::int64_t differing_findings(const std::vector<compare::Finding>& a,
                                const std::vector<compare::Finding>& b) {
  const std::vector<FindingKey> x = keys_of(a);
  const std::vector<FindingKey> y = keys_of(b);
  std::vector<FindingKey> only;
  std::ranges::set_symmetric_difference(x, y, std::back_inserter(only));
  return static_cast<std::int64_t>(only.size());
}

std::string where(const compare::Comparison& one) {
  std::string text = fmt::format("{}/{}", one.stage, one.tensor);
  const compare::Meaning& meaning = one.meaning;
  if (!meaning.request.empty()) text += ", request " + meaning.request;
  if (meaning.position) text += fmt::format(", position {}", *meaning.position);
  if (meaning.entry) text += fmt::format(", entry {}", *meaning.entry);
  if (meaning.head) text += fmt::format(", head {}", *meaning.head);
  if (!meaning.part.empty()) text += ", " + meaning.part;
  if (meaning.dim) text += fmt::format(", dim {}", *meaning.dim);
  if (meaning.rank) text += fmt::format(", rank {}", *meaning.rank);
  if (meaning.slot) text += fmt::format(", slot {}", *meaning.slot);
  if (meaning.page) text += fmt::format(", page {}", *meaning.page);
  if (meaning.offset) text += fmt::format(", offset {}", *meaning.offset);
  if (!one.reference.hex.empty()) text += fmt::format(": {} against {}", one.reference.hex, one.subject.hex);
  if (one.elements > 1) text += fmt::format("; {} of {} elements differ", one.mismatches, one.elements);
  if (!one.note.empty()) text += "; " + one.note;
  return text;
}

/// Ends a step in which nothing behind the stage matters any more.
struct Enough {};

const Tensor* tensor_of(const SeenStep& step, int layer, TensorId id) {
  if (layer < 0 || static_cast<std::size_t>(layer) >= step.observation.layers.size()) return nullptr;
  const auto& tensors = step.observation.layers[static_cast<std::size_t>(layer)].tensors;
  const auto found = tensors.find(id);
  return found == tensors.end() ? nullptr : &found->second;
}

}  // namespace

std::string Item::place() const {
  const auto& [layer, stage, tensor] = key;
  return tensor.empty() ? stage : stage + "/" + tensor;
}

/// A run of the reference, compared step by step.
struct Judge::Pass {
  Pass(const Judge& judge, const Candidate* candidate)
      : walk(make(judge, candidate)),
        comparator(walk.info(), judge.foreign_.info(), judge.bench_.rules, options(judge)) {}

  static Walk make(const Judge& judge, const Candidate* candidate) {
    const Bench& bench = judge.bench_;
    RunPlan plan = bench.plan(candidate == nullptr ? bench.profile : candidate->profile);
    auto engine = bench.engine("reference", plan.config, bench.weights, bench.hidden);
    if (candidate != nullptr && candidate->change)
      engine = candidate->change(std::move(engine), bench.weights);
    return {std::move(engine), std::move(plan), judge.gathered()};
  }
  static compare::CompareOptions options(const Judge& judge) {
    compare::CompareOptions options;
    options.wanted = [&judge](int, TensorId id) { return judge.bench_.compared.has_tensor(id); };
    return options;
  }

  Walk walk;
  compare::Comparator comparator;
};

Judge::Judge(const Bench& bench, Foreign& foreign) : bench_(bench), foreign_(foreign) {
  record();
}

Gathered Judge::gathered() const {
  return foreign_.gathered();
}

std::vector<Item> Judge::items_of(const compare::StepComparison& comparison, const SeenStep& ours,
                                  const SeenStep& foreign) const {
  std::vector<Item> items;
  for (const compare::Comparison& one : comparison.comparisons) {
    items.push_back({{one.layer, one.stage, one.tensor}, !one.failed, one.failed ? one.mismatches : 0});
  }
  if (!ours.findings.empty() || !foreign.findings.empty()) {
    const std::int64_t differing = differing_findings(ours.findings, foreign.findings);
    items.push_back({{-1, kWrites, ""}, differing == 0, differing});
  }
  if (!ours.stopped.empty() || !foreign.stopped.empty()) {
    const bool equal = ours.stopped.empty() == foreign.stopped.empty();
    items.push_back({{-1, kStopped, ""}, equal, equal ? 0 : 1});
  }
  return items;
}

void Judge::record() {
  Pass pass(*this, nullptr);
  config_ = pass.walk.plan().config;
  std::int64_t bytes = 0;
  while (const StepPlan* const plan = pass.walk.upcoming()) {
    RecordedStep step;
    step.index = plan->index;
    const std::string event = marked_event(*plan);
    step.reference = pass.walk.next();
    std::optional<SeenStep> seen = foreign_.step(step.index);
    if (!seen) {
      if (!steps_.empty() && !steps_.back().foreign.stopped.empty()) break;
      continue;
    }
    step.foreign = std::move(*seen);
    if (!bench_.compared.has_step(step.index)) continue;
    const compare::StepComparison comparison =
        pass.comparator.compare(step.reference.observation, step.foreign.observation);
    step.items = items_of(comparison, step.reference, step.foreign);
    for (const compare::Comparison& one : comparison.comparisons) dont_care_ += one.dont_care_mismatches;
    compared_ += static_cast<std::int64_t>(step.items.size());
    bytes += bytes_of(step.reference.observation) + bytes_of(step.foreign.observation);
    const auto differs = std::ranges::find(step.items, false, &Item::equal);
    if (!first_ && differs != step.items.end()) {
      FirstDifference& first = first_.emplace();
      first.step = step.index;
      std::tie(first.layer, first.stage, first.tensor) = differs->key;
      first.event = event;
      if (first.stage == kWrites) {
        const auto& findings =
            step.foreign.findings.empty() ? step.reference.findings : step.foreign.findings;
        first.tensor = findings.front().kind;
        first.layer = findings.front().layer;
        first.detail = findings.front().message;
      } else if (first.stage == kStopped) {
        first.detail = step.foreign.stopped.empty()
                           ? fmt::format("the reference stopped: {}", step.reference.stopped)
                           : step.foreign.stopped;
      } else {
        first.comparison = comparison.comparisons[static_cast<std::size_t>(differs - step.items.begin())];
        first.detail = where(*first.comparison);
      }
    }
    steps_.push_back(std::move(step));
    if (first_ && first_->step == steps_.back().index) first_at_ = steps_.size() - 1;
    // The oldest steps before the difference go first; behind it the record ends.
    while (bytes > bench_.memory && steps_.size() > 1 && !first_) {
      bytes -= bytes_of(steps_.front().reference.observation) + bytes_of(steps_.front().foreign.observation);
      steps_.erase(steps_.begin());
    }
    if (bytes > bench_.memory && first_) {
      whole_run_ = pass.walk.upcoming() == nullptr;
      break;
    }
  }
  if (compared_ == 0)
    throw UsageError("explain: nothing was compared (no step or tensor that both runs hold)");
  info_ = pass.walk.info();
}

bool Judge::own(const Item& item) const {
  const auto& [layer, stage, tensor] = item.key;
  if (stage != first_->stage) return false;
  return stage == kWrites || stage == kStopped || layer == first_->layer;
}

std::int64_t Judge::own_mismatches(const std::vector<Item>& items) const {
  std::int64_t total = 0;
  for (const Item& item : items) total += own(item) ? item.mismatches : 0;
  return total;
}

std::optional<double> Judge::error_of(const SeenStep& ours) const {
  if (!first_->comparison || !first_->comparison->id) return std::nullopt;
  const TensorId id = *first_->comparison->id;
  const Tensor* const a = tensor_of(ours, first_->layer, id);
  const Tensor* const b = tensor_of(first_step().foreign, first_->layer, id);
  if (a == nullptr || b == nullptr || a->shape() != b->shape() || a->dtype() != b->dtype())
    return std::nullopt;
  if (a->dtype() == DType::int32 || a->dtype() == DType::uint8) return std::nullopt;
  double sum = 0;
  for (std::int64_t i = 0; i < a->elements(); ++i) {
    const std::uint64_t x = load_bits(*a, i);
    const std::uint64_t y = load_bits(*b, i);
    if (x == y) continue;
    const double difference = std::fabs(decode(a->dtype(), x) - decode(b->dtype(), y));
    // A value beside inf or NaN is as wrong as can be; two NaN are the same.
    if (std::isnan(decode(a->dtype(), x)) && std::isnan(decode(b->dtype(), y))) continue;
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    sum += difference;
  }
  return sum;
}

bool Judge::gives_stage(const Engine& engine, Stage stage) const {
  for (const Item& item : first_step().items) {
    if (!own(item)) continue;
    const std::optional<TensorId> id = tensor_named(stage, std::get<2>(item.key));
    const Tensor* const ours = id ? engine.tensor(first_->layer, *id) : nullptr;
    const Tensor* const theirs = id ? tensor_of(first_step().foreign, first_->layer, *id) : nullptr;
    if (ours == nullptr || theirs == nullptr || ours->dtype() != theirs->dtype() ||
        ours->shape() != theirs->shape() || !std::ranges::equal(ours->bytes(), theirs->bytes())) {
      return false;
    }
  }
  return true;
}

SeenStep Judge::until_stage(const Engine& engine) const {
  SeenStep seen;
  seen.observation.step = first_->step;
  seen.observation.batch = first_step().reference.observation.batch;
  seen.observation.layers.resize(config_.layers.size());
  for (int layer = 0; layer <= first_->layer; ++layer) {
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (const Tensor* published = engine.tensor(layer, tensor.id))
        seen.observation.layers[static_cast<std::size_t>(layer)].tensors[tensor.id] = *published;
    }
  }
  return seen;
}

Evidence Judge::evaluate(const Candidate& candidate) const {
  if (std::optional<Evidence> evidence = evaluate(candidate, true)) return *std::move(evidence);
  return *evaluate(candidate, false);
}

std::optional<Evidence> Judge::evaluate(const Candidate& candidate, bool break_off) const {
  Evidence evidence;
  evidence.candidate = candidate;
  Pass pass(*this, &candidate);
  const std::optional<Stage> stage = break_off ? stage_named(first_->stage) : std::nullopt;
  std::size_t at = 0;
  while (at < steps_.size()) {
    const RecordedStep& known = steps_[at];
    const StepPlan* const plan = pass.walk.upcoming();
    std::map<Item::Key, Item> items;
    SeenStep seen;
    bool partial = false;
    if (plan != nullptr) {
      if (plan->index > known.index) throw UsageError("its plan has other steps");
      const bool judged = plan->index == known.index;
      StageHooks hooks;
      if (stage && judged && known.index == first_->step) {
        hooks.after = [&](int layer, Stage ran) {
          if (layer == first_->layer && ran == *stage && !gives_stage(pass.walk.engine(), ran))
            throw Enough{};
        };
      }
      try {
        seen = pass.walk.next(std::move(hooks));
      } catch (const Enough&) {
        seen = until_stage(pass.walk.engine());
        partial = true;
      }
      if (!judged) continue;
      const compare::StepComparison comparison =
          pass.comparator.compare(seen.observation, known.foreign.observation);
      for (Item& item : items_of(comparison, seen, known.foreign)) items.emplace(item.key, std::move(item));
    }
    ++at;
    // What the reference had and the candidate lacks counts as different.
    std::vector<Item> ordered;
    for (const Item& item : known.items) {
      const auto found = items.find(item.key);
      if (found == items.end()) {
        if (partial && !own(item)) continue;  // the step did not come to it
        ordered.push_back(
            {item.key, item.stage() == kWrites && known.foreign.findings.empty(), item.mismatches});
        continue;
      }
      ordered.push_back(std::move(found->second));
      items.erase(found);
    }
    for (auto& [key, item] : items) ordered.push_back(std::move(item));

    const bool diverging = known.index == first_->step;
    bool behind = known.index > first_->step;
    for (const Item& item : ordered) {
      const bool mine = diverging && own(item);
      if (mine) {
        behind = true;
        ++evidence.stage_total;
        evidence.stage_equal += item.equal ? 1 : 0;
      } else if (behind) {
        ++evidence.later_total;
        evidence.later_equal += item.equal ? 1 : 0;
        if (!item.equal && evidence.first_left.empty())
          evidence.first_left = fmt::format("{} of step {}", item.place(), known.index);
      } else if (!item.equal) {
        return evidence;
      }
    }
    if (!diverging) continue;
    const auto before = static_cast<double>(own_mismatches(known.items));
    const auto after = static_cast<double>(own_mismatches(ordered));
    evidence.elements_explained = before > 0 ? std::clamp(1.0 - after / before, 0.0, 1.0) : 0.0;
    const std::optional<double> error = error_of(known.reference);
    const std::optional<double> left = error_of(seen);
    if (error && left && *error > 0 && std::isfinite(*error))
      evidence.error_removed = std::clamp(1.0 - *left / *error, 0.0, 1.0);
    // Equal within the rules, but not in bits: the rest is needed after all.
    if (partial && evidence.stage_equal == evidence.stage_total) return std::nullopt;
    if (evidence.stage_equal != evidence.stage_total) {
      const bool some = evidence.elements_explained > 0 || evidence.error_removed > 0;
      evidence.fit = some ? Evidence::Fit::part : Evidence::Fit::none;
      return evidence;
    }
  }
  if (evidence.stage_total == 0) return evidence;
  evidence.fit =
      evidence.later_equal == evidence.later_total ? Evidence::Fit::everything : Evidence::Fit::stage;
  return evidence;
}

}  // namespace dsv4::oracle::explain
