#include "cli/explain_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/json_lines.hpp"

namespace dsv4::cli {
namespace {

using oracle::explain::Evidence;
using oracle::explain::Explanation;
using oracle::explain::TensorReading;
using Json = nlohmann::ordered_json;

std::string percent(double share) {
  // 99.99 % is not all.
  return share < 1 && share > 0.9995 ? ">99.9%" : fmt::format("{:.1f}%", 100 * share);
}

std::string of(std::int64_t equal, std::int64_t total) {
  return fmt::format("{} of {}", equal, total);
}

void print_table(const Explanation& all, std::size_t shown) {
  std::size_t width = 9;
  const std::size_t count = std::min(shown, all.ranked.size());
  for (std::size_t i = 0; i < count; ++i) width = std::max(width, all.ranked[i].candidate.name.size());
  fmt::print("\n{:<{}}  {:<13}  {:>9}  {:>11}  {:>8}  {:>8}  {}\n", "candidate", width, "kind", "stage",
             "later", "elements", "error", "reproduces");
  for (std::size_t i = 0; i < count; ++i) {
    const Evidence& one = all.ranked[i];
    fmt::print("{:<{}}  {:<13}  {:>9}  {:>11}  {:>8}  {:>8}  {}\n", one.candidate.name, width,
               name(one.candidate.kind), of(one.stage_equal, one.stage_total),
               one.fit <= Evidence::Fit::stage ? of(one.later_equal, one.later_total) : "-",
               percent(one.elements_explained), percent(one.error_removed), name(one.fit));
  }
  if (all.ranked.size() > count) fmt::print("and {} more\n", all.ranked.size() - count);
}

void print_text(const Explanation& all, const ExplainFacts& facts) {
  fmt::print("{}\n", all.sentence);
  if (!all.first) return;
  fmt::print("\nfirst difference  step {}{}, {}\n", all.first->step,
             all.first->layer >= 0 ? fmt::format(", layer {}", all.first->layer) : "", all.first->detail);
  if (!all.first->event.empty()) fmt::print("event             {}\n", all.first->event);
  fmt::print("compared          {} with the reference, profile {}, steps {} to {}, {} tensors and states\n",
             facts.subject, facts.profile, all.first_step, all.last_step, all.compared);
  if (!all.ranked.empty()) print_table(all, facts.shown);
  if (!all.readings.empty()) fmt::print("\nreadings of the difference\n");
  for (const TensorReading& one : all.readings) {
    fmt::print("{:>7}  {}: {} ({} of {} differing elements{})\n", percent(one.reading.share()), one.tensor,
               one.reading.sentence, one.reading.explained, one.reading.differing,
               one.reading.against > 0 ? fmt::format(", {} against it", one.reading.against) : "");
  }
  if (all.isolation && all.isolation->total > 0) {
    fmt::print("\nwith the foreign tensors of {} in place {} of {} other tensors and states agree{}\n",
               all.first->stage, all.isolation->equal, all.isolation->total,
               all.isolation->first_left.empty() ? "" : ", not " + all.isolation->first_left);
  }
  fmt::print("\n{} candidates tried in {:.1f} s, {} do not apply to this run, {} left out\n", all.tried,
             facts.seconds, all.refused, all.left_out);
}

void print_json(const Explanation& all, const ExplainFacts& facts) {
  Json record{{"type", "explanation"},      {"outcome", name(all.outcome)}, {"certain", all.certain()},
              {"sentence", all.sentence},   {"scenario", facts.scenario},   {"subject", facts.subject},
              {"profile", facts.profile},   {"first_step", all.first_step}, {"last_step", all.last_step},
              {"compared", all.compared},   {"differing", all.differing},   {"dont_care", all.dont_care},
              {"whole_run", all.whole_run}, {"tried", all.tried},           {"refused", all.refused},
              {"left_out", all.left_out},   {"seconds", facts.seconds}};
  if (all.first) {
    record["step"] = all.first->step;
    record["layer"] = all.first->layer;
    record["stage"] = all.first->stage;
    record["tensor"] = all.first->tensor;
    record["detail"] = all.first->detail;
  }
  if (all.isolation) {
    record["isolated_equal"] = all.isolation->equal;
    record["isolated_total"] = all.isolation->total;
    record["isolated_left"] = all.isolation->first_left;
  }
  print_json_line(record);
  std::int64_t rank = 0;
  for (const Evidence& one : all.ranked) {
    print_json_line({{"type", "explanation_candidate"},
                     {"rank", rank++},
                     {"kind", name(one.candidate.kind)},
                     {"name", one.candidate.name},
                     {"meaning", one.candidate.meaning},
                     {"reproduces", name(one.fit)},
                     {"stage_equal", one.stage_equal},
                     {"stage_total", one.stage_total},
                     {"later_equal", one.later_equal},
                     {"later_total", one.later_total},
                     {"elements_explained", one.elements_explained},
                     {"error_removed", one.error_removed},
                     {"first_left", one.first_left}});
  }
  for (const TensorReading& one : all.readings) {
    print_json_line({{"type", "explanation_reading"},
                     {"tensor", one.tensor},
                     {"name", one.reading.name},
                     {"sentence", one.reading.sentence},
                     {"explained", one.reading.explained},
                     {"against", one.reading.against},
                     {"differing", one.reading.differing},
                     {"share", one.reading.share()}});
  }
}

}  // namespace

void print_explanation(const Explanation& explanation, const ExplainFacts& facts) {
  if (facts.json)
    print_json(explanation, facts);
  else
    print_text(explanation, facts);
}

}  // namespace dsv4::cli
