#include "oracle/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>

#include "compare/state_comparer.hpp"
#include "model/error.hpp"
#include "oracle/explain/judge.hpp"
#include "oracle/explain/rotation.hpp"

namespace dsv4::oracle::explain {
namespace {

using Clock = std::chrono::steady_clock;

/// Parameters that are steps: those up to the difference, the nearest three.
std::vector<std::int64_t> steps_to_try(const Judge& judge) {
  std::vector<std::int64_t> steps;
  for (const RecordedStep& step : judge.steps()) {
    if (step.index <= judge.first()->step && step.index + 3 > judge.first()->step)
      steps.push_back(step.index);
  }
  return steps;
}

std::vector<Candidate> candidates_of(const Bench& bench, const Judge& judge) {
  std::vector<Candidate> all = fault_candidates(bench.profile, judge.config().layers, steps_to_try(judge));
  // Those that are known to change the stage first are tried first.
  std::stable_partition(all.begin(), all.end(),
                        [&](const Candidate& one) { return one.reported == judge.first()->stage; });
  const auto append = [&](std::vector<Candidate> more) { std::ranges::move(more, std::back_inserter(all)); };
  append(axis_candidates(bench.profile));
  append(profile_candidates(bench.profile));
  append(bench.more);
  return all;
}

/// A fault that is known to change another stage first, one that runs later in a step, had shown there in an
/// earlier step if it had reached this one through state; where that stage was recorded, the fault is ruled
/// out.
bool comes_later(const Candidate& one, const Judge& judge) {
  const FirstDifference& first = *judge.first();
  const std::optional<Stage> known = stage_named(one.reported);
  const std::optional<Stage> seen = stage_named(first.stage);
  if (!known || !seen || first.layer < 0) return false;
  const auto order = execution_order(judge.config().layers.at(static_cast<std::size_t>(first.layer)), false);
  if (std::ranges::find(order, *known) <= std::ranges::find(order, *seen)) return false;
  if (first.step == 0) return true;
  return judge.steps().front().index == 0 &&
         std::ranges::any_of(judge.steps(), [&](const RecordedStep& step) {
           return step.index < first.step &&
                  std::ranges::find(step.items, one.reported, &Item::stage) != step.items.end();
         });
}

bool better(const Evidence& a, const Evidence& b) {
  if (a.fit != b.fit) return a.fit < b.fit;
  if (a.fit == Evidence::Fit::stage && a.later_equal != b.later_equal) return a.later_equal > b.later_equal;
  return a.removed() > b.removed();
}

/// Axes taken over one after the other, each the one that carries the agreement farthest.
std::optional<Evidence> several_axes(const Judge& judge, const Profile& start,
                                     const Clock::time_point until) {
  Candidate chosen;
  chosen.kind = Candidate::Kind::axes;
  chosen.profile = start;
  std::optional<Evidence> best;
  std::int64_t reached = -1;
  for (int round = 0; round < 12; ++round) {
    std::optional<Evidence> next;
    for (Candidate one : axis_candidates(chosen.profile)) {
      if (Clock::now() > until) return best;
      one.kind = Candidate::Kind::axes;
      one.name = one.family = chosen.name.empty() ? one.name : fmt::format("{} {}", chosen.name, one.name);
      try {
        Evidence evidence = judge.evaluate(one);
        if (evidence.fit > Evidence::Fit::stage || evidence.later_equal <= reached) continue;
        reached = evidence.later_equal;
        next = std::move(evidence);
      } catch (const UsageError&) {
        // A value that the reference does not compute with the others.
      }
    }
    if (!next) return round > 1 ? best : std::nullopt;
    best = next;
    chosen = next->candidate;
    best->candidate.meaning = "several axes differ";
    if (best->fit == Evidence::Fit::everything) return best;
  }
  return best;
}

/// Faults in the layer that differed first alone, where other layers would have them too; those that give the
/// stage's bits.
std::vector<Evidence> in_one_layer(const Judge& judge, const std::vector<Candidate>& all,
                                   const Clock::time_point until) {
  std::vector<Evidence> found;
  const FirstDifference& first = *judge.first();
  if (first.layer < 0 || judge.config().layers.size() < 2) return found;
  for (const Candidate& one : all) {
    if (one.kind != Candidate::Kind::fault || comes_later(one, judge)) continue;
    if (Clock::now() > until) break;
    try {
      Evidence evidence = judge.evaluate(in_layer(one, first.layer));
      if (evidence.fit <= Evidence::Fit::stage) found.push_back(std::move(evidence));
    } catch (const UsageError&) {
      // It does not apply to this run.
    }
  }
  return found;
}

void read_tensor(const std::string& path, const compare::ReadingInput& input,
                 std::vector<TensorReading>& out) {
  for (compare::Reading& reading : compare::readings(input)) out.push_back({path, false, std::move(reading)});
}

/// The reference's tensor of the last step before the first difference that published one.
const Tensor* previous_of(const Judge& judge, int layer, TensorId id) {
  const Tensor* found = nullptr;
  for (const RecordedStep& step : judge.steps()) {
    if (step.index >= judge.first()->step) break;
    const auto& tensors = step.reference.observation.layers.at(static_cast<std::size_t>(layer)).tensors;
    const auto at = tensors.find(id);
    if (at != tensors.end() && at->second.elements() > 0) found = &at->second;
  }
  return found;
}

compare::ReadingInput input_of(const Judge& judge, int layer, TensorId id, const Tensor& reference,
                               const Tensor& subject) {
  compare::ReadingInput input;
  input.reference = &reference;
  input.subject = &subject;
  input.previous = previous_of(judge, layer, id);
  const std::int64_t width = reference.shape().empty() ? 0 : reference.shape().back();
  if (info(id).dims.ends_with("byte")) input.packed = compare::PackedRow::of_row_bytes(width);
  if (reference.dtype() == DType::bfloat16 && (width == kHeadDim || width == kRopeDim))
    input.rotated = kRopeDim;
  const StepObservation& observation = judge.first_step().reference.observation;
  const auto& tensors = observation.layers.at(static_cast<std::size_t>(layer)).tensors;
  if (info(id).dims.starts_with("token")) {
    const auto visible = tensors.find(TensorId::visible);
    const bool scores = id == TensorId::scores && visible != tensors.end();
    input.judged = [request = observation.batch.request, scores,
                    counts = scores ? visible->second : Tensor{}](std::int64_t row, std::int64_t element) {
      if (request.as<std::int32_t>()[static_cast<std::size_t>(row)] < 0) return false;
      return !scores || element < counts.as<std::int32_t>()[static_cast<std::size_t>(row)];
    };
  }
  return input;
}

/// A verdict as a reading; empty for those that say nothing of the cause.
std::string_view words_of(compare::Verdict verdict) {
  switch (verdict) {
    case compare::Verdict::value_equal:
      return "the values are the same once dequantised, or the same in another order";
    case compare::Verdict::ordering_only:
      return "the values are no farther apart than two orders of the same sum, made from the same inputs";
    case compare::Verdict::tie_swap:
      return "the selection is another legal choice among equal scores";
    default:
      return {};
  }
}

/// Of the tensor that differed first; where it has none, of those of its stage.
std::vector<TensorReading> readings_of(const Judge& judge) {
  std::vector<TensorReading> found;
  const FirstDifference& first = *judge.first();
  if (first.layer < 0) return found;
  const RecordedStep& step = judge.first_step();
  const LayerObservation& reference =
      step.reference.observation.layers.at(static_cast<std::size_t>(first.layer));
  const LayerObservation& foreign = step.foreign.observation.layers.at(static_cast<std::size_t>(first.layer));
  for (const Item& item : step.items) {
    if (!judge.own(item) || item.equal) continue;
    if (!found.empty()) break;
    const std::string& tensor = std::get<2>(item.key);
    const std::optional<Stage> stage = stage_named(item.stage());
    if (stage) {
      const std::optional<TensorId> id = tensor_named(*stage, tensor);
      if (!id || !reference.tensors.contains(*id) || !foreign.tensors.contains(*id)) continue;
      const Tensor& a = reference.tensors.at(*id);
      const Tensor& b = foreign.tensors.at(*id);
      for (compare::Reading& one :
           rotation_readings(judge.config(), step.reference.observation, first.layer, *id, b))
        found.push_back({item.place(), false, std::move(one)});
      read_tensor(item.place(), input_of(judge, first.layer, *id, a, b), found);
    } else if (reference.state_tensors.contains(tensor) && foreign.state_tensors.contains(tensor)) {
      compare::ReadingInput input;
      input.reference = &reference.state_tensors.at(tensor);
      input.subject = &foreign.state_tensors.at(tensor);
      if (input.reference->shape().size() == 2) {
        input.packed = compare::snapshot_layout(judge.config(), first.layer, tensor, input.reference->dim(1));
      }
      read_tensor(item.place(), input, found);
    }
  }
  if (first.comparison) {
    if (const std::string_view words = words_of(first.comparison->verdict); !words.empty()) {
      const std::int64_t count = first.comparison->mismatches;
      found.push_back(
          {fmt::format("{}/{}", first.stage, first.tensor),
           false,
           {std::string(compare::name(first.comparison->verdict)), std::string(words), count, 0, count}});
    }
  }
  for (TensorReading& one : found) one.first = one.tensor == fmt::format("{}/{}", first.stage, first.tensor);
  if (found.size() > 3) found.resize(3);
  return found;
}

Explanation::Outcome outcome_of(const Explanation& explanation) {
  std::set<std::string> families;
  for (const Evidence* one : explanation.reproducing()) families.insert(one->candidate.family);
  if (families.size() == 1) return Explanation::Outcome::explained;
  if (families.size() > 1) return Explanation::Outcome::ambiguous;
  if (!explanation.ranked.empty() && explanation.ranked.front().fit == Evidence::Fit::stage)
    return Explanation::Outcome::stage_only;
  return explanation.certain_reading() != nullptr ? Explanation::Outcome::read
                                                  : Explanation::Outcome::unexplained;
}

}  // namespace

std::string_view name(Evidence::Fit fit) {
  constexpr std::array<std::string_view, 4> kNames{"everything", "stage", "part", "none"};
  return kNames[static_cast<std::size_t>(fit)];
}

std::string_view name(Explanation::Outcome outcome) {
  constexpr std::array<std::string_view, 6> kNames{"no_difference", "explained", "ambiguous",
                                                   "stage_only",    "read",      "unexplained"};
  return kNames[static_cast<std::size_t>(outcome)];
}

std::vector<const Evidence*> Explanation::reproducing() const {
  std::vector<const Evidence*> all;
  for (const Evidence& one : ranked) {
    if (one.fit == Evidence::Fit::everything) all.push_back(&one);
  }
  return all;
}

const TensorReading* Explanation::certain_reading() const {
  for (const TensorReading& one : readings) {
    if (one.first && one.reading.certain()) return &one;
  }
  return nullptr;
}

Explanation explain(const Bench& bench, Foreign& foreign, const OnCandidate& on_candidate) {
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(bench.seconds));
  const Judge judge(bench, foreign);
  Explanation explanation;
  explanation.first = judge.first();
  explanation.compared = judge.compared();
  explanation.dont_care = judge.dont_care();
  for (const RecordedStep& step : judge.steps()) {
    for (const Item& item : step.items) explanation.differing += item.mismatches;
  }
  explanation.first_step = judge.steps().front().index;
  explanation.last_step = judge.steps().back().index;
  explanation.whole_run = judge.whole_run();
  explanation.bits = bench.rules.set() == compare::RuleSet::bits;
  if (!judge.first()) {
    explanation.sentence = sentence_of(explanation);
    return explanation;
  }
  const std::vector<Candidate> all = candidates_of(bench, judge);
  for (std::size_t at = 0; at < all.size(); ++at) {
    const bool go_on = !on_candidate || on_candidate(static_cast<std::int64_t>(at),
                                                     static_cast<std::int64_t>(all.size()), all[at].name);
    if (!go_on || Clock::now() > until) {
      explanation.left_out = static_cast<std::int64_t>(all.size() - at);
      break;
    }
    if (comes_later(all[at], judge)) {
      ++explanation.tried;
      continue;
    }
    try {
      Evidence evidence = judge.evaluate(all[at]);
      ++explanation.tried;
      if (evidence.fit != Evidence::Fit::none) explanation.ranked.push_back(std::move(evidence));
    } catch (const UsageError&) {
      ++explanation.refused;
    }
  }
  std::ranges::stable_sort(explanation.ranked, better);
  // Beside what reproduces everything, a small agreement is coincidence.
  if (!explanation.reproducing().empty()) {
    std::erase_if(explanation.ranked,
                  [](const Evidence& one) { return one.fit == Evidence::Fit::part && one.removed() < 0.5; });
  }
  if (explanation.reproducing().empty() && explanation.left_out == 0) {
    for (Evidence& one : in_one_layer(judge, all, until)) explanation.ranked.push_back(std::move(one));
    if (std::optional<Evidence> axes = several_axes(judge, bench.profile, until))
      explanation.ranked.push_back(std::move(*axes));
    std::ranges::stable_sort(explanation.ranked, better);
  }
  explanation.readings = readings_of(judge);
  if (explanation.reproducing().empty()) explanation.isolation = judge.isolate();
  explanation.outcome = outcome_of(explanation);
  explanation.sentence = sentence_of(explanation);
  return explanation;
}

}  // namespace dsv4::oracle::explain
