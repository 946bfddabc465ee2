#include "cli/replay_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <utility>

#include "cli/engines.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "cli/model_kernels.hpp"
#include "oracle/attention_entropy.hpp"
#include "oracle/checkpoint.hpp"
#include "oracle/faults/catalogue.hpp"
#include "oracle/dump_size.hpp"
#include "oracle/interrupt.hpp"
#include "oracle/live_rows.hpp"
#include "oracle/progress.hpp"
#include "oracle/slots.hpp"
#include "scenario/coverage.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

/// Caches up to this size are checked byte by byte after every step unless told otherwise.
constexpr std::int64_t kSmallCaches = std::int64_t{4} << 20;

void keep_selected(StepObservation& step, const oracle::Selection& selection) {
  for (LayerObservation& layer : step.layers) {
    const auto unselected = [&](const auto& item) { return !selection.has_tensor(item.first); };
    std::erase_if(layer.tensors, unselected);
    std::erase_if(layer.unrounded, unselected);
    std::erase_if(layer.bounds, unselected);
    if (!selection.snapshots) layer.state_tensors.clear();
  }
}

bool same_numerics(const Profile& a, const Profile& b) {
  return a.exact == b.exact && std::ranges::all_of(axes(), [&](const AxisInfo& axis) {
           return a.value(axis.axis) == b.value(axis.axis);
         });
}

/// The chosen tensors of a step, and its snapshots.
std::int64_t selected_tensors(const StepObservation& step, const oracle::Selection& selection) {
  std::int64_t count = 0;
  for (const LayerObservation& layer : step.layers) {
    count +=
        std::ranges::count_if(layer.tensors, [&](const auto& t) { return selection.has_tensor(t.first); });
    if (selection.snapshots) count += static_cast<std::int64_t>(layer.state_tensors.size());
  }
  return count;
}

}  // namespace

ReplayRun::ReplayRun(const scenario::Scenario& scenario, const ReplayOptions& options, const Shared& shared,
                     report::Reporter& reporter, std::string dump_path)
    : scenario_(scenario),
      options_(options),
      shared_(shared),
      reporter_(reporter),
      dump_path_(std::move(dump_path)),
      selection_(oracle::parse_selection(options.stages, options.tensors, options.steps)) {
  const bool expects =
      options.expect && (!scenario.expect.covers.empty() || !scenario.expect.same_as.empty());
  gathered_ = options.feed == "reference" || expects ? oracle::Selection{} : selection_;
  gathered_.snapshots = selection_.snapshots;
}

ReplayRun::~ReplayRun() = default;

void ReplayRun::choose_profiles() {
  subject_profile_ = side_profile(scenario_.profile, options_.profile, options_.axes);
  const bool other_keeps_own =
      subject_profile_.exact && options_.against != "wide";  // only wide computes `exact`
  reference_profile_ = !options_.against_profile.empty() ? profile_named(options_.against_profile)
                       : other_keeps_own                 ? scenario_.profile
                                                         : subject_profile_;
}

std::unique_ptr<ReplayRun::Side> ReplayRun::make_side(const std::string& engine, const Profile& profile,
                                                      const std::string& fault, bool model_kernels) {
  auto side = std::make_unique<Side>();
  scenario::Scenario scenario = scenario_;
  scenario.profile = profile;
  if (options_.seed) scenario.seed = *options_.seed;
  side->plan = scenario::plan(scenario);
  if (!weights_) {
    weights_ = weights_of(scenario, side->plan.config);
    hidden_ = hidden_of(scenario, side->plan.config);
  }
  side->engine = engine_factory(options_.compute.engine)(engine, side->plan.config, weights_, hidden_);
  if (model_kernels) side->engine = with_model_kernels(std::move(side->engine), weights_);
  if (!fault.empty()) {
    auto faulty = oracle::faults::inject(std::move(side->engine), weights_, oracle::faults::parse_injection(fault));
    faulty_ = faulty.get();
    side->engine = std::move(faulty);
  }
  side->runner = std::make_unique<oracle::Runner>(*side->engine, gathered_);
  side->runner->gather_late();
  if (!subject_ && options_.check_lifetimes) side->runner->check_lifetimes();
  std::size_t first = 0;
  if (!options_.resume.empty()) {
    const oracle::CheckpointInfo saved = oracle::read_checkpoint(options_.resume);
    if (saved.scenario != scenario_.text) {
      throw UsageError(options_.resume + ": was written by a run of another scenario (" +
                       saved.scenario_file + ")");
    }
    if (saved.seed != side->plan.config.seed) {
      throw UsageError(fmt::format("{}: was written with seed {}, this run has {}", options_.resume,
                                   saved.seed, side->plan.config.seed));
    }
    const std::string models = model_kernels ? kernel_models_text(side->plan.config) : "";
    if (saved.kernel_models != models) {
      const auto said = [](const std::string& text) { return text.empty() ? "without kernel models" : "with " + text; };
      throw UsageError(fmt::format("{}: was written {}, this run is {}", options_.resume, said(saved.kernel_models),
                                   said(models)));
    }
    for (const AxisInfo& axis : axes()) {
      if (saved.axes.at(std::string(axis.name)) != profile.value(axis.axis)) {
        throw UsageError(fmt::format("{}: was written with {} = {}, this run has {}", options_.resume,
                                     axis.name, saved.axes.at(std::string(axis.name)),
                                     profile.value(axis.axis)));
      }
    }
    oracle::restore_checkpoint(options_.resume, *side->engine);
    first = static_cast<std::size_t>(saved.next_step);
  }
  side->source = std::make_unique<oracle::LiveSource>(*side->runner, side->plan, scenario_.text, first);
  if (model_kernels)
    side->source->name_engine(side->source->info().engine + std::string(kModelKernelsSuffix));
  return side;
}

void ReplayRun::set_up_subject() {
  subject_ = make_side(options_.engine, subject_profile_, options_.inject, options_.model_kernels);
  const auto end = static_cast<std::int64_t>(subject_->plan.steps.size());
  const StepPlan* const upcoming = subject_->source->upcoming();
  first_step_ = upcoming != nullptr ? upcoming->index : end;
  oracle::require_match(selection_, subject_->plan.config.layers, first_step_, end);
  checkpoints_ = parse_checkpoints(options_.checkpoints);
  for (const auto& [step, file] : checkpoints_) {
    if (step >= first_step_ && step < end) continue;
    throw UsageError(
        fmt::format("--checkpoint {}:{}: this run has the steps {} to {}", step, file, first_step_, end - 1));
  }
  const EngineInfo engine = subject_->engine->info();
  if (!checkpoints_.empty() && !engine.byte_state) {
    throw SubjectError("engine '" + engine.name +
                       "' has no byte-exact caches, so it cannot write a checkpoint");
  }
  const bool small = oracle::cache_bytes(subject_->plan.config) <= kSmallCaches;
  if (options_.check_writes.value_or((small || faulty_ != nullptr) && engine.byte_state)) subject_->runner->check_writes();
  if (options_.expect && scenario_.expect.same_as == "sequential" && options_.resume.empty() &&
      !options_.model_kernels) {
    if (engine.bit_exact) {
      sequential_ = std::make_unique<oracle::SequentialCheck>(subject_->plan, subject_->source->info());
    } else {
      fmt::print(stderr, "same_as: sequential is not checked on engine '{}', which is not exact in bits\n",
                 engine.name);
    }
  }
}

void ReplayRun::set_up_reference() {
  if (options_.against.empty()) {
    if (options_.feed == "reference") throw UsageError("--feed reference needs --against");
    return;
  }
  if (options_.feed == "reference" && options_.model_kernels) check_feeding_kernel_models(subject_->plan.config);
  const std::vector<std::string> engines = engine_names();
  const bool is_file = std::filesystem::exists(options_.against) || options_.against.ends_with(".h5");
  if (is_file && std::ranges::find(engines, options_.against) == engines.end()) {
    if (!options_.against_profile.empty())
      throw UsageError("--against-profile is for an engine; " + options_.against + " has its own");
    reference_file_ = std::make_unique<io::DumpReader>(options_.against);
    if (options_.feed == "independent") reference_file_->want(selection_.tensors);
    reference_file_->want_state_tensors(selection_.snapshots);
    reference_source_ = reference_file_.get();
    return;
  }
  check_engine_name(options_.against);
  reference_ = make_side(options_.against, reference_profile_, "", false);
  reference_source_ = reference_->source.get();
}

/// Where one of two engines has graphs, the other runs their steps as plain ones: the rows are the same.
void ReplayRun::share_graph_steps() {
  if (!reference_ || subject_->engine->info().graphs == reference_->engine->info().graphs) return;
  oracle::run_graphs_as_steps(subject_->engine->info().graphs ? reference_->plan : subject_->plan);
}

void ReplayRun::set_up_comparison() {
  report::Header header{"replay", scenario_.name.ends_with(']') ? scenario_.name : scenario_.file, nullptr,
                        nullptr, nullptr};
  header.reference = &subject_->source->info();
  if (reference_source_ != nullptr) {
    const SourceInfo& subject = subject_->source->info();
    const SourceInfo& reference = reference_source_->info();
    lockstep_ = std::make_unique<oracle::Lockstep>(
        *subject_->source, *reference_source_,
        options_.feed == "reference" ? oracle::Feed::reference : oracle::Feed::independent);
    const bool bits = subject.bit_exact && reference.bit_exact &&
                      has_model_kernels(subject) == has_model_kernels(reference) &&
                      same_numerics(subject.config.profile, reference.config.profile);
    rules_ = std::make_unique<compare::Rules>(make_rules(options_.rules, bits, reference, subject));
    for (const std::string& text : options_.rule_overrides) rules_->add_override(text);
    compare::CompareOptions compare_options;
    compare_options.wanted = [this](int, TensorId id) { return selection_.has_tensor(id); };
    compare_options.fed = options_.feed == "reference";
    due_ = make_due();
    compare_options.due = due_;
    if (reference_) {
      compare_options.complete = [this](compare::StepComparison& step) {
        const StepPlan& plan = subject_->plan.steps.at(static_cast<std::size_t>(step.step));
        oracle::locate_state_differences(*reference_->engine, *subject_->engine, plan, step);
      };
    }
    comparator_ = std::make_unique<compare::Comparator>(reference, subject, *rules_, compare_options);
    header.reference = &reference;
    header.subject = &subject;
    header.rules = rules_.get();
  }
  reporter_.config(header);
}

void ReplayRun::set_up_dump() {
  if (dump_path_.empty()) return;
  const std::int64_t needed = oracle::dump_bytes(subject_->plan, selection_);
  const std::int64_t cap = parse_size(options_.max_dump);
  if (needed > cap) {
    throw UsageError(
        fmt::format("the dump would hold up to {}, more than --max-dump {}; choose less with --stages, "
                    "--tensors or --steps, or raise --max-dump",
                    size_text(needed), options_.max_dump));
  }
  io::require_free_space(dump_path_, needed);
  io::DumpOptions dump_options;
  dump_options.compress = options_.compress;
  dump_options.selection =
      oracle::stated(selection_, first_step_, static_cast<std::int64_t>(subject_->plan.steps.size()));
  writer_ = std::make_unique<io::DumpWriter>(dump_path_, subject_->source->info(), dump_options);
}

void ReplayRun::judge(oracle::Lockstep::Pair& pair, compare::StepComparison& comparison) {
  if (!pair.reference) {
    if (!selection_.has_step(pair.subject.step)) return;
    if (due_ && due_(true, pair.subject.step, std::nullopt)) {
      comparison.findings.push_back(
          compare::missing(true, pair.subject.step, -1, fmt::format("step {}", pair.subject.step)));
      return;
    }
    comparison.skips.push_back({compare::Skip::Kind::not_produced, pair.subject.step, -1, "", "",
                                "the dump compared with does not hold this step"});
    return;
  }
  if (!selection_.has_step(pair.subject.step)) return;
  comparison = comparator_->compare(*pair.reference, pair.subject);
  matched_ |= selection_.tensors.all();
  for (const compare::Comparison& one : comparison.comparisons) matched_ |= one.id.has_value();
  const bool subject_exact = subject_->source->info().bit_exact;
  if (subject_exact && reference_source_->info().bit_exact) return;
  if (subject_exact) {
    errors_.add(pair.subject, *pair.reference, &comparison);
  } else {
    errors_.add(*pair.reference, pair.subject, &comparison);
  }
}

void ReplayRun::dump(StepObservation observation) {
  if (!writer_ || !selection_.has_step(observation.step)) return;
  keep_selected(observation, selection_);
  writer_->write(observation);
}

void ReplayRun::checkpoint(std::int64_t step) {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end()) return;
  checkpoints_written_.insert(step);
  oracle::write_checkpoint(found->second, *subject_->engine, step + 1, scenario_.text, scenario_.file,
                           options_.model_kernels ? kernel_models_text(subject_->plan.config) : "");
}

void ReplayRun::report_broken_step(const StepPlan& broken) {
  const std::vector<compare::Finding>& found = subject_->runner->write_findings();
  std::optional<oracle::Lockstep::Pair> pair;
  if (lockstep_) pair = lockstep_->broken_off();
  if (!pair || !selection_.has_step(pair->subject.step)) {
    compare::StepComparison comparison;
    comparison.step = broken.index;
    comparison.findings = found;
    if (!found.empty()) reporter_.step({broken.index, oracle::marked_event(broken), 0, 0}, comparison);
    return;
  }
  compare::StepComparison comparison = comparator_->compare(*pair->reference, pair->subject);
  comparison.findings = found;  // what the subject did not come to is not missing
  const StepPlan& plan = subject_->plan.steps.at(static_cast<std::size_t>(pair->subject.step));
  std::int64_t tokens = 0;
  for (const RequestStep& request : plan.requests) tokens += request.row_count;
  reporter_.step({plan.index, pair->subject.event, tokens, 0}, comparison);
  const compare::Totals& totals = comparator_->totals();
  if (totals.first_divergence) {
    reporter_.first_divergence(*totals.first_divergence, oracle::marked_event(plan), totals, reproduce(plan.index));
  }
}

bool ReplayRun::step() {
  const StepPlan& plan = *subject_->source->upcoming();
  oracle::Lockstep::Pair pair;
  try {
    if (lockstep_) {
      pair = *lockstep_->next();
    } else {
      pair.subject = *subject_->source->next();
    }
  } catch (const Error&) {
    report_broken_step(plan);
    throw;
  }
  compare::StepComparison comparison;
  comparison.step = plan.index;
  comparison.event = pair.subject.event;
  if (comparator_) {
    const oracle::Timed timed(comparing_);
    judge(pair, comparison);
  }

  std::vector<compare::Finding> findings = subject_->runner->write_findings();
  const std::vector<std::string> nonfinite = oracle::nonfinite_tensors(pair.subject);
  if (options_.stop_on_nonfinite && !nonfinite.empty()) {
    compare::Finding finding;
    finding.step = plan.index;
    finding.kind = "nonfinite";
    finding.message =
        fmt::format("inf or NaN in {} ({} tensors in all)", nonfinite.front(), nonfinite.size());
    findings.push_back(std::move(finding));
    nonfinite_failure_ = true;
  }
  if (selection_.has_step(plan.index)) selected_ += selected_tensors(pair.subject, selection_);
  if (comparator_) {
    // A step that was not compared is not in the totals yet.
    if (!pair.reference)
      std::ranges::move(std::exchange(comparison.findings, {}), std::back_inserter(findings));
    comparator_->add_findings(comparison, std::move(findings));
  } else {
    comparison.findings = std::move(findings);
    own_totals_.add(comparison);
  }
  std::int64_t tokens = 0;
  for (const RequestStep& request : plan.requests) tokens += request.row_count;
  reporter_.step({plan.index, pair.subject.event, tokens, static_cast<std::int64_t>(nonfinite.size())},
                 comparison);
  if (options_.stats && selection_.has_step(plan.index)) {
    StepObservation chosen = pair.subject;
    keep_selected(chosen, selection_);
    std::vector<compare::TensorStatistics> rows = compare::statistics(chosen, subject_->source->info());
    oracle::add_attention_entropy(*subject_->engine, pair.subject, rows);
    reporter_.statistics(rows);
  }
  if (options_.expect) data_coverage_.add(pair.subject);
  if (sequential_) sequential_->add(*subject_->engine, plan, pair.subject);
  dump(std::move(pair.subject));
  checkpoint(plan.index);
  ++steps_done_;
  return nonfinite_failure_ ? false : options_.keep_going || !comparison.failed();
}

std::string ReplayRun::reproduce(std::int64_t step) const {
  std::string command = "dsv4-oracle";
  bool has_only = false;
  for (std::size_t i = 1; i < shared_.arguments.size(); ++i) {
    const std::string& argument = shared_.arguments[i];
    if (argument == "--json" || argument == "--continue" || argument == "--quiet") continue;
    if (argument == "--steps" || argument == "--dump") {
      ++i;
      continue;
    }
    if (argument.starts_with("--steps=") || argument.starts_with("--dump=")) continue;
    has_only |= argument.starts_with("--only");
    command += " " + shell_quoted(argument);
  }
  const std::size_t open = scenario_.name.rfind('[');
  if (!has_only && scenario_.name.ends_with(']') && open != std::string::npos) {
    command += " --only " + shell_quoted(scenario_.name.substr(open));
  }
  return command + fmt::format(" --steps {}:{}", step, step + 1);
}

int ReplayRun::finish(bool interrupted) {
  const compare::Totals& totals = comparator_ ? comparator_->totals() : own_totals_;
  if (totals.first_divergence) {
    const std::int64_t at = totals.first_divergence->step;
    reporter_.first_divergence(*totals.first_divergence,
                               oracle::marked_event(subject_->plan.steps.at(static_cast<std::size_t>(at))),
                               totals, reproduce(at));
  }
  const SourceInfo& subject = subject_->source->info();
  const bool wide = comparator_ && !(subject.bit_exact && reference_source_->info().bit_exact);
  if (wide) {
    const SourceInfo& yardstick = subject.bit_exact ? reference_source_->info() : subject;
    reporter_.values(errors_.rows(), yardstick.engine + ", profile " + yardstick.config.profile.name);
  }
  const bool whole = !interrupted && !stopped_;
  if (whole && reference_file_ && comparator_) report_later_steps();
  for (const auto& [step, file] : checkpoints_) {
    if (!checkpoints_written_.contains(step))
      fmt::print(stderr, "dsv4-oracle: {} was not written: the run ended before step {}\n", file, step);
  }
  bool hold = true;
  if (options_.expect && whole && options_.resume.empty()) hold = expectations_hold();
  int code = totals.passed() && hold ? kDone : kFailed;
  if (code == kDone && comparator_ && (totals.nothing_compared() || !matched_)) {
    fmt::print(stderr, "dsv4-oracle: nothing was compared\n");
    code = kUsage;
  }
  if (code == kDone && whole && selected_ == 0 && !selection_.tensors.all()) {
    fmt::print(stderr, "dsv4-oracle: the run published nothing of what --stages and --tensors choose\n");
    code = kUsage;
  }
  if (faulty_ != nullptr && faulty_->fired() == 0 && (code == kDone || code == kUsage)) {
    fmt::print(stderr, "dsv4-oracle: the fault '{}' changed nothing in this run, so nothing was tested\n", options_.inject);
    code = kUsage;
  }
  if (interrupted) code = kInterrupted;
  if (writer_) {
    if (whole) {
      writer_->finish();
    } else {
      fmt::print(stderr, "the dump ends early and is kept as {}\n", writer_->partial_path());
    }
  }
  if (options_.times) report_times();
  const auto steps = static_cast<std::int64_t>(subject_->plan.steps.size());
  if (comparator_ || shared_.json) {
    reporter_.summary({totals, stopped_ || interrupted ? steps - steps_done_ : 0, code});
  } else {
    std::cout << fmt::format(
        "{} of {} steps{}{}\n", steps_done_, steps,
        totals.findings > 0 ? fmt::format(", {} findings", totals.findings) : "",
        writer_ && whole ? ", " + dump_path_ + " (" + size_text(writer_->bytes()) + ")" : "");
  }
  return code;
}

int ReplayRun::run() {
  choose_profiles();
  set_up_subject();
  set_up_reference();
  share_graph_steps();
  set_up_comparison();
  set_up_dump();
  std::int64_t tokens = 0;
  for (const StepPlan& plan : subject_->plan.steps) tokens += static_cast<std::int64_t>(plan.rows.size());
  bool interrupted = false;
  {
    const oracle::Timed timed(whole_);
    oracle::Progress progress(scenario_.name, tokens, "tokens", !shared_.quiet);
    while (const StepPlan* plan = subject_->source->upcoming()) {
      const auto rows = static_cast<std::int64_t>(plan->rows.size());
      const std::int64_t index = plan->index;
      if (!step()) {
        stopped_ = subject_->source->upcoming() != nullptr;
        break;
      }
      progress.advance(rows, fmt::format("step {} of {}", index + 1, subject_->plan.steps.size()));
      if (oracle::interrupted()) {
        interrupted = true;
        break;
      }
    }
  }
  return finish(interrupted);
}

int replay_run(const scenario::Scenario& scenario, const ReplayOptions& options, const Shared& shared,
               report::Reporter& reporter, const std::string& dump_path) {
  return ReplayRun(scenario, options, shared, reporter, dump_path).run();
}

}  // namespace dsv4::cli
