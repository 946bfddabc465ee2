#include "cli/check_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "report/wording.hpp"

namespace dsv4::cli {
namespace {

using compare::Verdict;

std::string steps_text(std::int64_t ulp) {
  if (ulp < 0) return "";
  if (ulp == INT64_MAX) return ", NaN against a number";
  return fmt::format(", {} step{} of the format apart", ulp, ulp == 1 ? "" : "s");
}

}  // namespace

CheckReport::Stage& CheckReport::of(const std::string& stage) {
  const auto [found, added] = stages_.try_emplace(stage);
  if (added) order_.push_back(stage);
  return found->second;
}

void CheckReport::begin(const CheckedCase& checked) {
  case_ = checked.name;
  if (json_) {
    print_json_line({{"type", "check_case"},
                     {"case", checked.name},
                     {"vectors", checked.vectors},
                     {"results", checked.results},
                     {"profile", checked.profile},
                     {"kernel_models", checked.kernel_models},
                     {"rules", checked.rules}});
    return;
  }
  fmt::print("{}{}{}: rules {}, {}\n", checked.name,
             checked.profile.empty() ? "" : ", profile " + checked.profile,
             checked.kernel_models.empty() ? "" : " with kernel models", checked.rules,
             checked.results.empty() ? "no results" : checked.results);
}

void CheckReport::tensor(const compare::Comparison& c, std::int64_t first_ulp) {
  Stage& stage = of(c.stage);
  ++stage.compared;
  ++stage.verdicts[static_cast<std::size_t>(c.verdict)];
  stage.failed += c.failed;
  elements_ += c.elements;
  if (json_) {
    nlohmann::ordered_json record{{"type", "check_tensor"}, {"case", case_},
                                  {"step", c.step},         {"stage", c.stage},
                                  {"tensor", c.tensor},     {"verdict", name(c.verdict)},
                                  {"rule", c.rule},         {"failed", c.failed},
                                  {"elements", c.elements}, {"mismatches", c.mismatches},
                                  {"outside", c.outside}};
    if (!c.first.empty()) {
      record["coordinate"] = c.first;
      record["where"] = report::describe(c.meaning);
      record["expected"] = report::number(c.reference.decoded.value_or(c.reference.value));
      record["expected_hex"] = c.reference.hex;
      record["found"] = report::number(c.subject.decoded.value_or(c.subject.value));
      record["found_hex"] = c.subject.hex;
    }
    if (c.worst_ulp) record["worst_ulp"] = *c.worst_ulp;
    if (!c.note.empty()) record["note"] = c.note;
    print_json_line(record);
    return;
  }
  if (c.verdict == Verdict::equal && !verbose_) return;
  const std::string what = fmt::format("step {}, {}/{}", c.step, c.stage, c.tensor);
  fmt::print("  {:<38} {}{}", what, name(c.verdict), c.failed ? "  FAILS" : "");
  if (c.verdict == Verdict::equal) {
    fmt::print(", {} elements\n", c.elements);
    return;
  }
  fmt::print(", {} of {} elements differ, {} beyond the rule {}\n", c.mismatches, c.elements, c.outside,
             c.rule);
  if (!c.note.empty()) fmt::print("    {}\n", c.note);
  if (c.first.empty()) return;
  fmt::print("    first at {} ({}): expected {}, found {}{}\n", report::describe_coordinate(c.first),
             report::describe(c.meaning), report::describe(c.reference), report::describe(c.subject),
             steps_text(first_ulp));
}

void CheckReport::missing(std::int64_t step, const std::string& stage, const std::string& tensor) {
  ++of(stage).missing;
  if (json_) {
    print_json_line(
        {{"type", "check_missing"}, {"case", case_}, {"step", step}, {"stage", stage}, {"tensor", tensor}});
  } else {
    missing_.push_back(fmt::format("{} step {}, {}/{}", case_, step, stage, tensor));
  }
}

int CheckReport::finish() {
  std::int64_t compared = 0;
  std::int64_t failed = 0;
  std::int64_t missing = 0;
  if (!json_) {
    fmt::print("\n{:<18} {:>8} {:>6} {:>11} {:>13} {:>8} {:>11} {:>8} {:>6} {:>7}\n", "stage", "compared",
               "equal", "value-equal", "ordering-only", "tie-swap", "within rule", "diverged", "fail",
               "missing");
  }
  std::ranges::stable_sort(order_, {}, [](const std::string& name) {
    const std::optional<dsv4::Stage> stage = stage_named(name);
    return stage ? static_cast<int>(*stage) : -1;
  });
  for (const std::string& name : order_) {
    const Stage& stage = stages_.at(name);
    const auto count = [&](Verdict verdict) { return stage.verdicts[static_cast<std::size_t>(verdict)]; };
    compared += stage.compared;
    failed += stage.failed;
    missing += stage.missing;
    if (json_) {
      print_json_line({{"type", "check_stage"},
                       {"stage", name},
                       {"compared", stage.compared},
                       {"equal", count(Verdict::equal)},
                       {"value_equal", count(Verdict::value_equal)},
                       {"ordering_only", count(Verdict::ordering_only)},
                       {"tie_swap", count(Verdict::tie_swap)},
                       {"within_rule", count(Verdict::within_rule)},
                       {"diverged", count(Verdict::diverged)},
                       {"failed", stage.failed},
                       {"missing", stage.missing}});
    } else {
      fmt::print("{:<18} {:>8} {:>6} {:>11} {:>13} {:>8} {:>11} {:>8} {:>6} {:>7}\n", name, stage.compared,
                 count(Verdict::equal), count(Verdict::value_equal), count(Verdict::ordering_only),
                 count(Verdict::tie_swap), count(Verdict::within_rule), count(Verdict::diverged),
                 stage.failed, stage.missing);
    }
  }
  const int code = elements_ == 0 ? kUsage : failed > 0 ? kFailed : kDone;
  if (json_) {
    print_json_line({{"type", "check"},
                     {"compared", compared},
                     {"elements", elements_},
                     {"failed", failed},
                     {"missing", missing},
                     {"exit_code", code}});
  } else {
    if (!missing_.empty()) {
      constexpr std::size_t kShown = 12;
      fmt::print("\nnot in the results:\n");
      for (std::size_t i = 0; i < missing_.size() && (verbose_ || i < kShown); ++i)
        fmt::print("  {}\n", missing_[i]);
      if (!verbose_ && missing_.size() > kShown)
        fmt::print("  and {} more (--verbose names them)\n", missing_.size() - kShown);
    }
    if (elements_ == 0) fmt::print("\nNOTHING WAS COMPARED");
    fmt::print("\n{} tensors compared, {} elements; {} fail; {} outputs missing\n", compared, elements_,
               failed, missing);
  }
  if (elements_ == 0) fmt::print(stderr, "dsv4-oracle: nothing was compared\n");
  return code;
}

}  // namespace dsv4::cli
