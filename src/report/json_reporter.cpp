#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/reporter.hpp"
#include "report/wording.hpp"

namespace dsv4::report {
namespace {

using Json = nlohmann::ordered_json;
using compare::Comparison;

// JSON has no inf and NaN: these are strings.
Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

template <class T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (std::is_same_v<T, double>) {
    json[key] = number(*value);
  } else {
    json[key] = *value;
  }
}

Json meaning_of(const compare::Meaning& meaning) {
  Json json = Json::object();
  if (meaning.padding) json["padding"] = true;
  if (!meaning.request.empty()) json["request"] = meaning.request;
  put(json, "position", meaning.position);
  put(json, "position_mod_4", meaning.position_mod_4);
  put(json, "position_mod_128", meaning.position_mod_128);
  put(json, "position_mod_page", meaning.position_mod_page);
  put(json, "entry", meaning.entry);
  put(json, "entry_first", meaning.entry_first);
  put(json, "entry_last", meaning.entry_last);
  put(json, "head", meaning.head);
  put(json, "dim", meaning.dim);
  put(json, "block", meaning.block);
  put(json, "rank", meaning.rank);
  put(json, "slot", meaning.slot);
  put(json, "page", meaning.page);
  put(json, "offset", meaning.offset);
  if (!meaning.part.empty()) json["part"] = meaning.part;
  return json;
}

Json value_of(const compare::ElementValue& value) {
  Json json{{"value", number(value.value)}, {"hex", value.hex}};
  put(json, "decoded", value.decoded);
  put(json, "score", value.score);
  return json;
}

Json nonfinite_of(const compare::NonFinite& found) {
  return {{"count", found.count}, {"coordinate", found.first}, {"meaning", meaning_of(found.meaning)}};
}

Json comparison_of(const Comparison& c, const char* type) {
  Json json{{"type", type},
            {"step", c.step},
            {"layer", c.layer},
            {"stage", c.stage},
            {"tensor", c.tensor},
            {"verdict", compare::name(c.verdict)},
            {"rule", c.rule},
            {"failed", c.failed},
            {"downstream", c.downstream},
            {"elements", c.elements},
            {"mismatches", c.mismatches},
            {"outside", c.outside},
            {"dont_care", c.dont_care}};
  if (c.dont_care > 0) {
    json["dont_care_mismatches"] = c.dont_care_mismatches;
    json["dont_care_reason"] = c.dont_care_reason;
  }
  if (c.reference_nonfinite.count > 0) json["reference_nonfinite"] = nonfinite_of(c.reference_nonfinite);
  if (c.subject_nonfinite.count > 0) json["subject_nonfinite"] = nonfinite_of(c.subject_nonfinite);
  if (!c.reference_digest.empty()) json["digest"] = {c.reference_digest, c.subject_digest};
  if (c.verdict == compare::Verdict::equal) return json;
  json["inputs"] = compare::name(c.inputs);
  json["inputs_identical"] = c.inputs == compare::Inputs::identical;
  json["inputs_compared"] = c.inputs_compared;
  if (c.worst_ulp) json["worst_ulp"] = *c.worst_ulp == INT64_MAX ? Json("nan") : Json(*c.worst_ulp);
  json["worst_absolute"] = number(c.worst_absolute);
  json["worst_relative"] = number(c.worst_relative);
  put(json, "worst_ratio", c.worst_ratio);
  put(json, "worst_code_steps", c.worst_code_steps);
  if (!c.first.empty()) {
    json["coordinate"] = c.first;
    json["meaning"] = meaning_of(c.meaning);
    json["reference"] = value_of(c.reference);
    json["subject"] = value_of(c.subject);
  }
  Json shared = Json::object();
  for (const auto& [axis, index] : c.shared) shared[axis] = index;
  json["shared"] = shared;
  json["requests"] = {c.requests_touched, c.requests_total};
  if (!c.note.empty()) json["note"] = c.note;
  return json;
}

Json source_of(const SourceInfo& info) {
  return {{"engine", info.engine},
          {"device", info.device},
          {"profile", info.config.profile.name},
          {"bit_exact", info.bit_exact},
          {"complete", info.complete}};
}

class JsonReporter : public Reporter {
 public:
  explicit JsonReporter(std::ostream& out) : out_(out) {}

  void config(const Header& header) override {
    Json json{{"type", "config"},
              {"schema", "dsv4-report/1"},
              {"command", header.command},
              {"scenario", header.scenario}};
    if (header.reference != nullptr) {
      json["seed"] = fmt::format("0x{:x}", header.reference->config.seed);
      json["reference"] = source_of(*header.reference);
    }
    if (header.subject != nullptr) json["subject"] = source_of(*header.subject);
    if (header.rules != nullptr) {
      json["rules"] = {{"set", compare::name(header.rules->set())}, {"overrides", header.rules->overrides()}};
    }
    write(json);
  }

  void step(const StepFacts& facts, const compare::StepComparison& comparison) override {
    for (const Comparison& c : comparison.comparisons) write(comparison_of(c, "comparison"));
    for (const compare::Skip& skip : comparison.skips) {
      write({{"type", "skip"},
             {"step", skip.step},
             {"layer", skip.layer},
             {"stage", skip.stage},
             {"tensor", skip.tensor},
             {"kind", skip.kind == compare::Skip::Kind::skipped ? "skipped" : "not_produced"},
             {"reason", skip.reason}});
    }
    for (const compare::Finding& finding : comparison.findings) {
      Json json{
          {"type", "finding"}, {"step", finding.step}, {"layer", finding.layer}, {"kind", finding.kind}};
      if (finding.cache) json["cache"] = name(*finding.cache);
      put(json, "page", finding.page);
      put(json, "offset", finding.offset);
      put(json, "byte", finding.byte);
      if (finding.stage) json["stage"] = name(*finding.stage);
      if (!finding.request.empty()) json["request"] = finding.request;
      put(json, "position", finding.position);
      put(json, "entry", finding.entry);
      put(json, "slot", finding.slot);
      json["owner"] = finding.owner;
      if (!finding.last_writer.empty()) json["last_writer"] = finding.last_writer;
      if (!finding.event.empty()) json["event"] = finding.event;
      json["message"] = finding.message;
      write(json);
    }
    write({{"type", "step"},
           {"step", facts.step},
           {"event", facts.event},
           {"tokens", facts.tokens},
           {"compared", comparison.comparisons.size()},
           {"failed", comparison.failed()},
           {"nonfinite_tensors", facts.nonfinite_tensors}});
  }

  void first_divergence(const Comparison& c, const std::string& event, const compare::Totals& totals,
                        const std::string& reproduce) override {
    Json json = comparison_of(c, "first_divergence");
    json["event"] = event;
    json["compared_before"] = totals.compared;
    json["reproduce"] = reproduce;
    write(json);
  }

  void statistics(const std::vector<compare::TensorStatistics>& rows) override {
    for (const compare::TensorStatistics& row : rows) {
      Json json{{"type", "stats"},
                {"step", row.step},
                {"layer", row.layer},
                {"stage", name(info(row.id).stage)},
                {"tensor", info(row.id).name},
                {"elements", row.elements},
                {"minimum", number(row.minimum)},
                {"maximum", number(row.maximum)},
                {"rms", number(row.rms)},
                {"nonfinite", nonfinite_of(row.nonfinite)}};
      put(json, "clamped", row.clamped);
      put(json, "flushed", row.flushed);
      if (!row.scale_exponents.empty()) {
        Json exponents = Json::object();
        for (const auto& [exponent, count] : row.scale_exponents) exponents[std::to_string(exponent)] = count;
        json["scale_exponents"] = exponents;
      }
      if (row.entropy) {
        json["softmax_entropy"] = {{"count", row.entropy->count},
                                   {"minimum", number(row.entropy->minimum)},
                                   {"mean", number(row.entropy->mean())},
                                   {"maximum", number(row.entropy->maximum)},
                                   {"uniform", number(row.entropy->uniform())}};
      }
      write(json);
    }
  }

  void values(const std::vector<compare::ErrorFigures>& rows, const std::string& yardstick) override {
    for (const compare::ErrorFigures& row : rows) {
      Json json{{"type", "values"},
                {"yardstick", yardstick},
                {"step", row.step},
                {"layer", row.layer},
                {"stage", name(info(row.id).stage)},
                {"tensor", info(row.id).name},
                {"elements", row.elements},
                {"frobenius_ratio", number(row.frobenius_ratio)},
                {"worst_in_rms", number(row.worst_in_rms)}};
      put(json, "codes_differ", row.codes_differ);
      put(json, "worst_ratio", row.worst_ratio);
      write(json);
    }
  }

  void times(const std::vector<PartTime>& parts) override {
    Json seconds = Json::object();
    for (const PartTime& one : parts) seconds[one.part] = one.seconds;
    write({{"type", "times"}, {"seconds", seconds}});
  }

  void summary(const Ending& ending) override {
    const compare::Totals& t = ending.totals;
    Json verdicts = Json::object();
    for (std::size_t i = 0; i < compare::kVerdictCount; ++i) {
      verdicts[std::string(compare::name(static_cast<compare::Verdict>(i)))] = t.verdicts[i];
    }
    Json json{{"type", "summary"},
              {"steps", t.steps},
              {"compared", t.compared},
              {"verdicts", verdicts},
              {"failed", t.failed},
              {"downstream", t.downstream},
              {"skipped", t.skipped},
              {"not_produced", t.not_produced},
              {"findings", t.findings},
              {"elements", t.elements},
              {"dont_care", t.dont_care},
              {"steps_not_compared", ending.steps_not_compared},
              {"nothing_compared", t.nothing_compared()},
              {"exit_code", ending.exit_code}};
    put(json, "worst_ratio", t.worst_ratio);
    if (const std::string next = hint(t); !next.empty()) json["hint"] = next;
    write(json);
    out_.flush();
  }

 private:
  void write(const Json& json) { out_ << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n'; }
  std::ostream& out_;
};

}  // namespace

std::unique_ptr<Reporter> json_reporter(std::ostream& out) {
  return std::make_unique<JsonReporter>(out);
}

}  // namespace dsv4::report
