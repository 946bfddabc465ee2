#include "oracle/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compare/comparator.hpp"
#include "model/seeded.hpp"
#include "oracle/sequential.hpp"
#include "oracle/slots.hpp"
#include "scenario/coverage.hpp"
#include "scenario/plan.hpp"

namespace dsv4::oracle {
namespace {

/// Caches above this size are not looked at byte by byte after every step.
constexpr std::int64_t kSmallCaches = std::int64_t{64} << 20;

struct Form {
  std::string_view name;
  C4State c4_state;
  C128State c128_state;
};
constexpr std::array kForms{Form{"ring", C4State::ring, C128State::ring},
                            Form{"paged", C4State::paged, C128State::paged},
                            Form{"page4align", C4State::page4align, C128State::paged}};

TrialSide side_named(std::string_view text, const std::string& engine) {
  for (const Form& form : kForms) {
    if (form.name == text) return {engine, form.c4_state, form.c128_state, std::nullopt};
  }
  return {std::string(text), std::nullopt, std::nullopt, std::nullopt};
}

bool has_form(const TrialSide& side) {
  return side.c4_state || side.c128_state;
}

bool same_numerics(const Profile& a, const Profile& b) {
  return a.exact == b.exact && std::ranges::all_of(axes(), [&](const AxisInfo& axis) {
           return a.value(axis.axis) == b.value(axis.axis);
         });
}

/// What two cache forms may differ in: where state rows lie, and which of them a restore step computes again.
void drop_places(StepObservation& observation, StepKind kind) {
  observation.tables.reset();
  for (LayerObservation& layer : observation.layers) {
    layer.writes.clear();
    if (kind == StepKind::restore || kind == StepKind::lifecycle) {
      layer.tensors.clear();
      continue;
    }
    layer.tensors.erase(TensorId::compress_state_slot);
    layer.tensors.erase(TensorId::indexer_state_slot);
  }
  if (kind == StepKind::restore || kind == StepKind::lifecycle) observation.batch = BatchTables{};
}

std::string place(const compare::Comparison& first, const RunPlan& plan) {
  std::string text =
      fmt::format("step {}, layer {}, {}/{}", first.step, first.layer, first.stage, first.tensor);
  if (!first.meaning.request.empty()) text += ", request " + first.meaning.request;
  if (first.meaning.position) text += fmt::format(", position {}", *first.meaning.position);
  if (first.meaning.entry) text += fmt::format(", entry {}", *first.meaning.entry);
  if (!first.reference.hex.empty())
    text += fmt::format(": {} against {}", first.reference.hex, first.subject.hex);
  const auto step = static_cast<std::size_t>(first.step);
  if (first.step >= 0 && step < plan.steps.size()) text += ", after " + plan.steps[step].event;
  return text;
}

Divergence divergence(const compare::Comparison& first, const RunPlan& plan) {
  return {first.stage, first.tensor, std::string(name(first.verdict)), first.step, place(first, plan)};
}

Divergence divergence(const compare::Finding& finding) {
  return {"writes", finding.cache ? std::string(name(*finding.cache)) : "", finding.kind, finding.step,
          finding.message};
}

Divergence divergence(const Error& error, std::int64_t step) {
  return {"engine", "", "error", step, error.what()};
}

}  // namespace

std::string Divergence::signature() const {
  return fmt::format("{}{}{} {}", stage, tensor.empty() ? "" : "/", tensor, kind);
}

TrialPair trial_pair(std::string_view text, const std::string& engine) {
  TrialPair pair;
  pair.name = text;
  if (text == "sequential") {
    pair.sequential = true;
    pair.subject.engine = engine;
    return pair;
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    throw UsageError(
        fmt::format("pair '{}': expected A:B of engines or cache forms (ring, paged, page4align), "
                    "or sequential",
                    text));
  }
  pair.reference = side_named(text.substr(0, colon), engine);
  pair.subject = side_named(text.substr(colon + 1), engine);
  if (has_form(pair.reference) != has_form(pair.subject)) {
    throw UsageError(fmt::format("pair '{}': a cache form is compared with another cache form", text));
  }
  if (pair.reference.engine == "wide" || pair.subject.engine == "wide") pair.feed = Feed::reference;
  return pair;
}

TrialTools seeded_tools(EngineFactory engine) {
  return {std::move(engine),
          [](const scenario::Scenario&, const RunConfig& config) { return seeded_weights(config); },
          [](const scenario::Scenario&, const RunConfig& config) { return seeded_hidden(config); },
          {},
          {},
          {}};
}

/// An engine with what drives it.
struct Trial::Side {
  RunPlan plan;
  std::shared_ptr<const WeightSource> weights;
  std::shared_ptr<const HiddenSource> hidden;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<LiveSource> source;
};

Trial::Trial(TrialPair pair, TrialTools tools) : pair_(std::move(pair)), tools_(std::move(tools)) {}

std::set<std::string> Trial::facts() const {
  std::set<std::string> facts = plan_facts_;
  facts.insert(data_facts_.facts().begin(), data_facts_.facts().end());
  return facts;
}

std::unique_ptr<Trial::Side> Trial::make_side(const scenario::Scenario& scenario, const TrialSide& wanted,
                                              bool subject) {
  auto side = std::make_unique<Side>();
  scenario::Scenario own = scenario;
  if (wanted.profile) own.profile = *wanted.profile;
  scenario::Overrides forms;
  forms.c4_state = wanted.c4_state;
  forms.c128_state = wanted.c128_state;
  side->plan = scenario::plan(own, forms);
  side->weights = tools_.weights(own, side->plan.config);
  side->hidden = tools_.hidden(own, side->plan.config);
  side->engine = tools_.engine(wanted.engine, side->plan.config, side->weights, side->hidden);
  const bool two_forms = has_form(pair_.reference) || has_form(pair_.subject);
  if (tools_.models && (two_forms || subject == (pair_.subject.engine != "wide"))) {
    side->engine =
        tools_.models(std::move(side->engine), side->weights, pair_.feed == Feed::reference && !two_forms);
  }
  if (subject && tools_.fault) side->engine = tools_.fault(std::move(side->engine), side->weights);
  const EngineInfo info = side->engine->info();
  if (!info.graphs) run_graphs_as_steps(side->plan);
  side->runner = std::make_unique<Runner>(*side->engine, Selection{});
  const bool small = cache_bytes(side->plan.config) <= kSmallCaches;
  if (subject && pair_.check_writes && small && info.byte_state) side->runner->check_writes();
  if (subject && pair_.check_writes) side->runner->check_lifetimes();
  side->source = std::make_unique<LiveSource>(*side->runner, side->plan, scenario.text);
  return side;
}

std::optional<Divergence> Trial::run(const scenario::Scenario& scenario) {
  std::optional<Divergence> found = pair_.sequential ? sequential(scenario) : lockstep(scenario);
  if (on_run_) on_run_();
  return found;
}

std::optional<Divergence> Trial::lockstep(const scenario::Scenario& scenario) {
  const std::unique_ptr<Side> reference = make_side(scenario, pair_.reference, false);
  const std::unique_ptr<Side> subject = make_side(scenario, pair_.subject, true);
  plan_facts_.merge(scenario::plan_coverage(reference->plan));
  plan_facts_.merge(scenario::plan_coverage(subject->plan));
  const SourceInfo& a = reference->source->info();
  const SourceInfo& b = subject->source->info();
  const bool forms = has_form(pair_.reference) || has_form(pair_.subject);
  // Steps are the same on both sides of cache forms but for what they restore.
  require(reference->plan.steps.size() == subject->plan.steps.size(), "two cache forms have other steps");
  const bool bits = a.bit_exact && b.bit_exact && same_numerics(a.config.profile, b.config.profile) &&
                    (forms || !tools_.models);
  compare::Rules rules(pair_.rules.value_or(bits ? compare::RuleSet::bits : compare::RuleSet::values));
  if (tools_.models && !forms) tools_.models_rules(rules, b.config);
  for (const std::string& text : pair_.rule_overrides) rules.add_override(text);
  compare::CompareOptions options;
  options.fed = pair_.feed == Feed::reference;
  options.wanted = [this](int, TensorId id) { return pair_.compared.has_tensor(id); };
  compare::Comparator comparator(a, b, rules, options);
  Lockstep sides(*subject->source, *reference->source, pair_.feed);
  std::optional<Divergence> found;
  while (const StepPlan* step = subject->source->upcoming()) {
    const std::int64_t index = step->index;
    try {
      Lockstep::Pair pair = *sides.next();
      if (forms) {
        const StepKind kind =
            std::max(step->kind, reference->plan.steps.at(static_cast<std::size_t>(index)).kind);
        drop_places(*pair.reference, kind);
        drop_places(pair.subject, kind);
      }
      data_facts_.add(pair.subject);
      if (!pair_.compared.has_step(index)) continue;
      compare::StepComparison comparison = comparator.compare(*pair.reference, pair.subject);
      comparator.add_findings(comparison, subject->runner->write_findings());
      const compare::Totals& totals = comparator.totals();
      if (totals.first_divergence) {
        found = divergence(*totals.first_divergence, subject->plan);
      } else if (!comparison.findings.empty()) {
        found = divergence(comparison.findings.front());
      }
    } catch (const UsageError&) {
      throw;  // the scenario is at fault
    } catch (const Error& error) {
      // An engine broke off; what it had computed may show where it went wrong.
      const std::optional<Lockstep::Pair> pair = sides.broken_off();
      if (pair && pair->reference && !forms) comparator.compare(*pair->reference, pair->subject);
      const compare::Totals& totals = comparator.totals();
      found = totals.first_divergence ? divergence(*totals.first_divergence, subject->plan)
                                      : divergence(error, index);
    }
    if (found) break;
  }
  compared_ += comparator.totals().compared;
  return found;
}

std::optional<Divergence> Trial::sequential(const scenario::Scenario& scenario) {
  const std::unique_ptr<Side> subject = make_side(scenario, pair_.subject, true);
  plan_facts_.merge(scenario::plan_coverage(subject->plan));
  SequentialCheck check(subject->plan, subject->source->info());
  for (const StepPlan& step : subject->plan.steps) {
    try {
      const StepObservation observation = *subject->source->next();
      data_facts_.add(observation);
      check.add(*subject->engine, step, observation);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      return divergence(error, step.index);
    }
    if (!subject->runner->write_findings().empty())
      return divergence(subject->runner->write_findings().front());
  }
  scenario::Scenario own = scenario;
  if (pair_.subject.profile) own.profile = *pair_.subject.profile;
  const compare::StepComparison comparison = check.finish(scenario::sequential_of(own), pair_.subject.engine,
                                                          tools_.engine, subject->weights, subject->hidden);
  const compare::Totals totals = check.totals();
  compared_ += totals.compared;
  if (totals.first_divergence) return divergence(*totals.first_divergence, subject->plan);
  if (comparison.findings.empty()) return std::nullopt;
  Divergence state = divergence(comparison.findings.front());
  state.stage = "state";
  return state;
}

}  // namespace dsv4::oracle
