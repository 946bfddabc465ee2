#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "report/reporter.hpp"
#include "report/wording.hpp"

namespace dsv4::report {
namespace {

using compare::Comparison;
using compare::Verdict;

/// Tables and batches are those of all layers.
std::string layer_name(int layer, std::string_view stage) {
  if (layer >= 0) return fmt::format("layer {}", layer);
  return stage == "state" ? "all layers" : "batch";
}

std::string share(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : std::string("-");
}

class TextReporter : public Reporter {
 public:
  TextReporter(std::ostream& out, TextOptions options) : out_(out), options_(options) {}

  void config(const Header& header) override {
    if (header.reference != nullptr && header.subject != nullptr) {
      line("{} {}: reference {}, subject {}", header.command, header.scenario, source(*header.reference),
           source(*header.subject));
    } else if (header.reference != nullptr) {
      line("{} {}: {}", header.command, header.scenario, source(*header.reference));
    }
    if (header.rules != nullptr) {
      std::string overrides;
      for (const std::string& text : header.rules->overrides()) overrides += ", " + text;
      line("rules {}{}", compare::name(header.rules->set()), overrides);
    }
  }

  void step(const StepFacts& facts, const compare::StepComparison& comparison) override {
    std::int64_t differing = 0;
    std::int64_t failed = 0;
    std::int64_t dont_care_mismatches = 0;
    for (const Comparison& c : comparison.comparisons) {
      differing += c.verdict != Verdict::equal;
      failed += c.failed;
      dont_care_mismatches += c.dont_care_mismatches;
      if (c.dont_care > 0) {
        DontCares& sum = dont_care_[c.dont_care_reason];
        sum.elements += c.dont_care;
        sum.differ += c.dont_care_mismatches;
      }
    }
    for (const compare::Skip& skip : comparison.skips) ++reasons_[{skip.kind, skip.reason}];
    const bool quiet = differing == 0 && comparison.findings.empty() && facts.nonfinite_tensors == 0;
    if (options_.verbose || !quiet) {
      std::string text =
          facts.step < 0 ? facts.event : fmt::format("step {}: {} tokens", facts.step, facts.tokens);
      text += fmt::format(", {} tensors compared", comparison.comparisons.size());
      if (differing > 0) text += fmt::format(", {} differ, {} fail", differing, failed);
      if (facts.nonfinite_tensors > 0) text += fmt::format(", {} with inf or NaN", facts.nonfinite_tensors);
      if (dont_care_mismatches > 0)
        text += fmt::format(", {} don't-care elements differ", dont_care_mismatches);
      line("{}", text);
    }
    if (options_.verbose) {
      for (const Comparison& c : comparison.comparisons) tensor_line(c);
    }
    for (const compare::Finding& finding : comparison.findings) {
      line("FINDING at step {}, {}: {}: {} (owner {})", finding.step, layer_name(finding.layer, "state"), finding.kind,
           finding.message, finding.owner);
      if (!finding.stage && !finding.last_writer.empty()) field("writer", finding.last_writer);
      if (!finding.event.empty()) field("event", finding.event);
    }
  }

  void first_divergence(const Comparison& c, const std::string& event, const compare::Totals& totals,
                        const std::string& reproduce) override {
    const std::string_view what = c.verdict == Verdict::diverged ? "DIVERGED" : "DIFFERS";
    const std::string when = c.step < 0 ? "by token" : fmt::format("at step {}", c.step);
    line("{} {}, {}, stage {}, tensor {}  (verdict {}, rule {})", what, when, layer_name(c.layer, c.stage), c.stage,
         c.tensor, compare::name(c.verdict), c.rule);
    if (!event.empty()) field("event", event);
    if (!c.first.empty()) {
      field("where", describe(c.meaning) + "   coordinate " + describe_coordinate(c.first));
      field("reference", describe(c.reference));
      field("subject", describe(c.subject));
      field("distance", distance(c));
    }
    if (!c.reference_digest.empty()) {
      field("reference", "digest " + c.reference_digest);
      field("subject", "digest " + c.subject_digest);
    }
    field("extent", extent(c));
    if (!c.note.empty()) field("note", c.note);
    field("inputs", describe_inputs(c));
    nonfinite("reference", c.reference_nonfinite);
    nonfinite("subject", c.subject_nonfinite);
    field("before", fmt::format("{} comparisons in {} steps up to here, {} of them equal", totals.compared,
                                totals.steps, totals.verdicts[static_cast<std::size_t>(Verdict::equal)]));
    if (!reproduce.empty()) field("reproduce", reproduce);
  }

  void statistics(const std::vector<compare::TensorStatistics>& rows) override {
    if (rows.empty()) return;
    line("{:<6}{:<6}{:<30}{:>10} {:>12} {:>12} {:>11} {:>8} {:>8} {:>10}  {}", "step", "layer", "tensor",
         "elements", "min", "max", "rms", "clamped", "zero", "inf or NaN", "scale exponents");
    for (const compare::TensorStatistics& row : rows) {
      std::string exponents;
      for (const auto& [exponent, count] : row.scale_exponents) {
        exponents += fmt::format("{}2^{}: {}", exponents.empty() ? "" : ", ", exponent, count);
      }
      line("{:<6}{:<6}{:<30}{:>10} {:>12.5g} {:>12.5g} {:>11.5g} {:>8} {:>8} {:>10}  {}", row.step, row.layer,
           path(row.id), row.elements, row.minimum, row.maximum, row.rms, share(row.clamped),
           share(row.flushed), row.nonfinite.count, exponents);
      if (row.nonfinite.count > 0) nonfinite("first", row.nonfinite);
      if (row.entropy) {
        field("softmax", fmt::format("entropy {:.3f} nats on average, {:.3f} to {:.3f}; even weights: {:.3f}",
                                     row.entropy->mean(), row.entropy->minimum, row.entropy->maximum,
                                     row.entropy->uniform()));
      }
    }
  }

  void values(const std::vector<compare::ErrorFigures>& rows, const std::string& yardstick) override {
    if (rows.empty()) return;
    line("error against {}", yardstick);
    line("{:<30}{:>12} {:>14} {:>14} {:>13} {:>12}", "stage/tensor", "elements", "relative", "worst / rms",
         "codes differ", "worst ratio");
    for (const compare::ErrorFigures& row : rows) {
      line("{:<30}{:>12} {:>14} {:>14} {:>13} {:>12}", path(row.id), row.elements,
           figure(row.frobenius_ratio), figure(row.worst_in_rms),
           row.codes_differ ? figure(*row.codes_differ) : "-",
           row.worst_ratio ? fmt::format("{:.3f}", *row.worst_ratio) : "-");
    }
  }

  void times(const std::vector<PartTime>& parts) override {
    for (const PartTime& one : parts) line("time  {:<20}{:>9.3f} s  {}", one.part, one.seconds, one.meaning);
  }

  void summary(const Ending& ending) override {
    const compare::Totals& t = ending.totals;
    const auto count = [&t](Verdict verdict) { return t.verdicts[static_cast<std::size_t>(verdict)]; };
    std::string verdicts;
    for (std::size_t i = 0; i < compare::kVerdictCount; ++i) {
      const auto verdict = static_cast<Verdict>(i);
      if (count(verdict) == 0 && verdict != Verdict::equal) continue;
      verdicts +=
          fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", count(verdict), compare::name(verdict));
    }
    for (const auto& [reason, sum] : dont_care_) {
      line("don't care: {} elements, {} of them differ: {}", sum.elements, sum.differ, reason);
    }
    if (t.nothing_compared()) line("NOTHING WAS COMPARED");
    line(
        "{} compared in {} steps ({}), {} failed here, {} downstream, {} skipped{}, {} not produced{}, {} "
        "findings, "
        "{} steps not compared{}",
        t.compared, t.steps, verdicts, t.failed, t.downstream, t.skipped, why(compare::Skip::Kind::skipped),
        t.not_produced, why(compare::Skip::Kind::not_produced), t.findings, ending.steps_not_compared,
        t.worst_ratio ? fmt::format(", worst ratio to the bound {:.3f}", *t.worst_ratio) : "");
    if (const std::string next = hint(t); !next.empty()) line("hint: {}", next);
    out_.flush();
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ << fmt::format(format, std::forward<Args>(args)...) << '\n';
  }
  void field(std::string_view name, const std::string& text) { line("  {:<10}{}", name, text); }

  static std::string source(const SourceInfo& info) {
    return fmt::format("{} ({}), profile {}{}", info.engine, info.device, info.config.profile.name,
                       info.complete ? "" : ", incomplete dump");
  }

  static std::string distance(const Comparison& c) {
    std::string text;
    if (c.worst_ulp) {
      text = *c.worst_ulp == INT64_MAX ? "worst: NaN against a number"
                                       : fmt::format("worst: {} steps of the format", *c.worst_ulp);
    }
    text += fmt::format("{}absolute {}, relative {}", text.empty() ? "worst: " : ", ",
                        figure(c.worst_absolute), figure(c.worst_relative));
    if (c.worst_ratio) text += fmt::format(", {:.3f} of the bound", *c.worst_ratio);
    return text;
  }

  static std::string extent(const Comparison& c) {
    std::string text =
        fmt::format("{} of {} elements differ, {} beyond the rule", c.mismatches, c.elements, c.outside);
    for (const auto& [axis, index] : c.shared) text += fmt::format("; all at {} {}", axis, index);
    if (c.requests_total > 0)
      text += fmt::format("; {} of {} requests", c.requests_touched, c.requests_total);
    if (c.dont_care > 0) {
      text += fmt::format("; {} don't-care elements ({}), {} of them differ", c.dont_care, c.dont_care_reason,
                          c.dont_care_mismatches);
    }
    return text;
  }

  void tensor_line(const Comparison& c) {
    line("  {:<8} {:<16} {:<16} {:<14} {} of {}{}", layer_name(c.layer, c.stage), c.stage, c.tensor,
         compare::name(c.verdict), c.mismatches, c.elements, c.downstream ? "  downstream" : "");
  }

  void nonfinite(std::string_view side, const compare::NonFinite& found) {
    if (found.count == 0) return;
    field("inf or NaN", fmt::format("{}: {} elements, first at {} ({})", side, found.count,
                                    describe_coordinate(found.first), describe(found.meaning)));
  }

  std::string why(compare::Skip::Kind kind) const {
    std::string text;
    for (const auto& [key, count] : reasons_) {
      if (key.first == kind) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key.second, count);
    }
    return text.empty() ? "" : " (" + text + ")";
  }

  struct DontCares {
    std::int64_t elements = 0;
    std::int64_t differ = 0;
  };
  std::ostream& out_;
  TextOptions options_;
  std::map<std::pair<compare::Skip::Kind, std::string>, std::int64_t> reasons_;
  std::map<std::string, DontCares> dont_care_;
};

}  // namespace

std::unique_ptr<Reporter> text_reporter(std::ostream& out, TextOptions options) {
  return std::make_unique<TextReporter>(out, options);
}

}  // namespace dsv4::report
