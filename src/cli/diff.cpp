#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <utility>

#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/model_kernels.hpp"
#include "compare/align.hpp"
#include "compare/comparator.hpp"
#include "io/dump_reader.hpp"
#include "oracle/data_coverage.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/progress.hpp"
#include "oracle/selection.hpp"
#include "report/reporter.hpp"

namespace dsv4::cli {
namespace {

constexpr const char* kFooter = R"(A is the reference, B is judged.

Examples:
  dsv4-oracle diff ours.h5 theirs.h5                   step by step, bits unless the profiles differ
  dsv4-oracle diff ours.h5 theirs.h5 --align token     other batching: by (layer, request, position)
  dsv4-oracle diff ours.h5 theirs.h5 --rules values --rule 'attention.core/out=ulp:2' --continue)";

struct DiffOptions {
  std::string a;
  std::string b;
  std::string align = "step";
  std::string rules;
  std::vector<std::string> rule_overrides;
  std::vector<std::string> stages;
  std::vector<std::string> tensors;
  std::string steps;
  bool keep_going = false;
  bool verbose = false;
};

compare::Rules rules_of(const DiffOptions& options, const SourceInfo& a, const SourceInfo& b) {
  bool bits = a.bit_exact && b.bit_exact && has_model_kernels(a) == has_model_kernels(b);
  for (const AxisInfo& axis : axes())
    bits &= a.config.profile.value(axis.axis) == b.config.profile.value(axis.axis);
  compare::Rules rules = make_rules(options.rules, bits, a, b);
  for (const std::string& text : options.rule_overrides) rules.add_override(text);
  return rules;
}

/// Both runs ended as they should and engines of one kind computed them: then each dump had to hold what it
/// states that it was asked for.
compare::Due make_due(const io::DumpReader& a, const io::DumpReader& b) {
  const std::optional<oracle::Selection> asked_a = oracle::stated_selection(a);
  const std::optional<oracle::Selection> asked_b = oracle::stated_selection(b);
  const bool judged = a.info().complete && b.info().complete && oracle::same_kind(a.info(), b.info());
  return [=](bool reference, std::int64_t step, std::optional<TensorId> id) {
    const std::optional<oracle::Selection>& asked = reference ? asked_a : asked_b;
    if (!judged || !asked) return false;
    const bool in_steps = step >= 0
                              ? asked->has_step(step)
                              : asked->first_step == 0 && asked->end_step == oracle::Selection{}.end_step;
    return in_steps && (!id || asked->has_tensor(*id));
  };
}

std::int64_t token_count(const StepObservation& step) {
  std::int64_t tokens = 0;
  for (const std::int32_t request : step.batch.request.as<std::int32_t>()) tokens += request >= 0 ? 1 : 0;
  return tokens;
}

std::string reproduce(const Shared& shared, std::int64_t step) {
  std::string command = "dsv4-oracle";
  for (std::size_t i = 1; i < shared.arguments.size(); ++i) {
    const std::string& argument = shared.arguments[i];
    if (argument == "--steps") {
      ++i;
    } else if (argument != "--json" && argument != "--continue" && !argument.starts_with("--steps=")) {
      command += " " + shell_quoted(argument);
    }
  }
  return command + (step >= 0 ? fmt::format(" --steps {}:{}", step, step + 1) : "");
}

/// Says the first divergence, the error table and the end; returns the exit code.
int conclude(const Shared& shared, report::Reporter& reporter, const compare::Totals& totals,
             const std::string& event, std::int64_t not_compared, bool by_token, bool interrupted,
             bool matched = true) {
  if (totals.first_divergence) {
    reporter.first_divergence(*totals.first_divergence, event, totals,
                              reproduce(shared, by_token ? -1 : totals.first_divergence->step));
  }
  int code = totals.passed() ? kDone : kFailed;
  if (code == kDone && (totals.nothing_compared() || !matched)) {
    fmt::print(stderr, "dsv4-oracle: nothing was compared\n");
    code = kUsage;
  }
  if (interrupted) code = kInterrupted;
  reporter.summary({totals, not_compared, code});
  return code;
}

int diff_by_token(const DiffOptions& options, const Shared& shared, io::DumpReader& a, io::DumpReader& b,
                  const compare::Rules& rules, report::Reporter& reporter) {
  if (!options.steps.empty())
    throw UsageError("--steps has no meaning with --align token: the two runs number steps apart");
  compare::Totals totals;
  const compare::StepComparison comparison = compare::compare_by_token(a, b, rules, &totals, make_due(a, b));
  reporter.step({-1, "all steps, by token", 0, 0}, comparison);
  return conclude(shared, reporter, totals, "", 0, true, false);
}

int diff_by_step(const DiffOptions& options, const Shared& shared, io::DumpReader& a, io::DumpReader& b,
                 const compare::Rules& rules, const oracle::Selection& selection,
                 report::Reporter& reporter) {
  compare::CompareOptions compare_options;
  compare_options.wanted = [&](int, TensorId id) { return selection.has_tensor(id); };
  const compare::Due due = make_due(a, b);
  compare_options.due = due;
  compare::Comparator comparator(a.info(), b.info(), rules, compare_options);
  std::optional<StepObservation> left = a.next();
  std::optional<StepObservation> right = b.next();
  std::string first_event;
  std::int64_t not_compared = 0;
  bool stopped = false;
  bool matched = selection.tensors.all();  // a chosen tensor was compared; batch tables alone are no match
  oracle::Progress progress("diff", static_cast<std::int64_t>(a.steps().size()), "steps", !shared.quiet);
  while (left || right) {
    compare::StepComparison comparison;
    report::StepFacts facts;
    if (left && right && left->step == right->step) {
      if (selection.has_step(left->step)) {
        comparison = comparator.compare(*left, *right);
        facts = {left->step, left->event, token_count(*left),
                 static_cast<std::int64_t>(oracle::nonfinite_tensors(*right).size())};
        for (const compare::Comparison& one : comparison.comparisons) matched |= one.id.has_value();
        if (comparison.failed() && first_event.empty()) first_event = left->event;
        reporter.step(facts, comparison);
      }
      left = a.next();
      right = b.next();
      progress.advance(1);
    } else {
      const bool only_left = left && (!right || left->step < right->step);
      std::optional<StepObservation>& alone = only_left ? left : right;
      if (selection.has_step(alone->step)) {
        comparison.step = alone->step;
        comparison.event = alone->event;
        if (due(!only_left, alone->step, std::nullopt)) {
          comparator.add_findings(comparison, {compare::missing(!only_left, alone->step, -1,
                                                                fmt::format("step {}", alone->step))});
        } else {
          comparison.skips.push_back({compare::Skip::Kind::not_produced, alone->step, -1, "", "",
                                      "only " + (only_left ? a.path() : b.path()) + " holds this step"});
        }
        reporter.step({alone->step, alone->event, token_count(*alone), 0}, comparison);
        ++not_compared;
      }
      alone = only_left ? a.next() : b.next();
    }
    if (comparison.failed() && !options.keep_going) {
      stopped = true;
      break;
    }
    if (oracle::interrupted()) break;
  }
  if (stopped) {
    for (const std::int64_t step : a.steps())
      not_compared += selection.has_step(step) && left && step >= left->step ? 1 : 0;
  }
  return conclude(shared, reporter, comparator.totals(), first_event, not_compared, false,
                  oracle::interrupted(), matched);
}

int run(const DiffOptions& options, const Shared& shared) {
  const oracle::Selection selection = oracle::parse_selection(options.stages, options.tensors, options.steps);
  io::DumpReader a(options.a);
  io::DumpReader b(options.b);
  for (io::DumpReader* reader : {&a, &b}) {
    reader->want(selection.tensors);
    if (!reader->info().complete)
      fmt::print(stderr, "{}: ends early (the run that wrote it did not finish)\n", reader->path());
  }
  const compare::Rules rules = rules_of(options, a.info(), b.info());
  const std::unique_ptr<report::Reporter> reporter =
      shared.json ? report::json_reporter(std::cout)
                  : report::text_reporter(std::cout, {.verbose = options.verbose});
  reporter->config({"diff", "", &a.info(), &b.info(), &rules});
  return options.align == "token" ? diff_by_token(options, shared, a, b, rules, *reporter)
                                  : diff_by_step(options, shared, a, b, rules, selection, *reporter);
}

}  // namespace

void add_diff(CLI::App& app, Shared& shared, Action& action) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* const command = app.add_subcommand("diff", "Compare two dumps");
  command->footer(kFooter);
  command->add_option("a", options->a, "Reference dump")->type_name("A.h5")->required();
  command->add_option("b", options->b, "Dump to judge")->type_name("B.h5")->required();
  command->add_option("--align", options->align, "step, or token when the batching differs")
      ->check(CLI::IsMember({"step", "token"}))
      ->capture_default_str();
  command
      ->add_option("--rules", options->rules,
                   "bits: only equal passes; values: rounding differences pass; hopper-exact: as values, but "
                   "bits of what kernel models computed from the same inputs")
      ->check(CLI::IsMember({"bits", "values", "hopper-exact"}));
  command->add_option("--rule", options->rule_overrides, "Rule of some tensors, for example 'q.up/.*=ulp:1'")
      ->type_name("REGEX=RULE");
  command->add_option("--stages", options->stages, "Only these stages")->type_name("GLOBS");
  command->add_option("--tensors", options->tensors, "Only these tensors")->type_name("GLOBS");
  command->add_option("--steps", options->steps, "Only these steps: FIRST:END, half-open")->type_name("A:B");
  command->add_flag("--continue", options->keep_going, "Go on after the first difference");
  command->add_flag("--verbose", options->verbose, "A line for every tensor that was compared");
  command->callback(
      [options, &shared, &action] { action = [options, &shared] { return run(*options, shared); }; });
}

}  // namespace dsv4::cli
