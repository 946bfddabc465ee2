#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "compare/comparator.hpp"
#include "compare/statistics.hpp"
#include "compare/synthetic.hpp"
#include "report/json_schema.hpp"
#include "report/reporter.hpp"
#include "support/catch.hpp"

namespace dsv4::report {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

// A report with every type of record in it: a NaN, a saturated code, a skip, a finding, a tie.
std::string full_report() {
  SourceInfo info = test::synthetic_info({LayerKind::csa});
  info.config.seed = 0xFEDCBA9876543210;
  StepObservation reference = test::synthetic_step(info);
  StepObservation subject = reference;
  auto& tensors = subject.layers[0].tensors;
  test::set<std::uint32_t>(tensors[TensorId::attention_lse], 3, 0x7FC00000);
  test::flip(tensors[TensorId::q], (4 * 4 + 1) * 512 + 7);
  test::flip(tensors[TensorId::window_codes], 5);
  tensors.erase(TensorId::hidden_out);
  compare::Rules rules(compare::RuleSet::bits);
  rules.add_override("q.up/raw=ulp:2");
  compare::Comparator comparator(info, info, rules);
  compare::StepComparison step = comparator.compare(reference, subject);
  compare::Finding finding;
  finding.step = 3;
  finding.layer = 0;
  finding.kind = "changed_without_write";
  finding.cache = Cache::window;
  finding.page = 2;
  finding.offset = 5;
  finding.byte = 2897;
  finding.owner = "b position 5";
  finding.event = R"({"free":"b"})";
  finding.stage = Stage::kv_window;
  finding.request = "a";
  finding.position = 69;
  finding.slot = 133;
  finding.last_writer = "b, position 5, in step 2 (kv.window)";
  finding.message = "1 bytes of cache window, page 2, row 5 changed without a write";
  comparator.add_findings(step, {finding});

  std::ostringstream out;
  const auto reporter = json_reporter(out);
  reporter->config({"replay", "tiny.yaml", &info, &info, &rules});
  reporter->step({3, subject.event, 6, 1}, step);
  reporter->first_divergence(*comparator.totals().first_divergence, subject.event, comparator.totals(),
                             "dsv4-oracle replay tiny.yaml --steps 3:4");
  reporter->statistics(compare::statistics(subject, info));
  reporter->values(compare::error_figures(subject, reference), "wide, profile exact");
  reporter->times({{"subject.stages", 1.5, "the stage table"}, {"comparing", 0.25, ""}});
  reporter->summary({comparator.totals(), 4, 1});
  return out.str();
}

}  // namespace

TEST_CASE("every record obeys the schema, and every type of record occurs") {
  std::ifstream file("data/schema/report.schema.json");
  REQUIRE(file.good());
  const json schema = json::parse(file);
  std::set<std::string> types;
  for (const json& line : lines_of(full_report())) {
    INFO(line.dump());
    REQUIRE(test::violation(line, schema, schema) == "");
    types.insert(line["type"]);
  }
  REQUIRE(types.size() == schema["oneOf"].size());
  // The schema refuses what it should.
  json wrong = lines_of(full_report()).back();
  wrong["extra"] = 1;
  REQUIRE(test::violation(wrong, schema, schema) != "");
  wrong.erase("extra");
  wrong.erase("compared");
  REQUIRE(test::violation(wrong, schema, schema) != "");
}

TEST_CASE("the first divergence leads to the element, numbers that JSON cannot hold are strings") {
  const std::vector<json> lines = lines_of(full_report());
  REQUIRE(lines.front()["seed"] == "0xfedcba9876543210");
  REQUIRE(lines.front()["rules"] == json({{"set", "bits"}, {"overrides", {"q.up/raw=ulp:2"}}}));
  const auto of_type = [&](const std::string& type, const std::string& tensor) {
    for (const json& line : lines) {
      if (line["type"] == type && (tensor.empty() || line["tensor"] == tensor)) return line;
    }
    return json();
  };
  const json first = of_type("first_divergence", "");
  REQUIRE(first["stage"] == "q.up");
  REQUIRE(first["tensor"] == "q");
  REQUIRE(first["coordinate"] == json({4, 1, 7}));
  REQUIRE(first["meaning"]["request"] == "b");
  REQUIRE(first["meaning"]["head"] == 1);
  REQUIRE(first["inputs_identical"] == true);
  REQUIRE(first["reproduce"] == "dsv4-oracle replay tiny.yaml --steps 3:4");
  const json lse = of_type("comparison", "lse");
  REQUIRE(lse["subject"]["value"] == "nan");
  REQUIRE(lse["subject"]["hex"] == "0x7fc00000");
  REQUIRE(lse["subject_nonfinite"]["count"] == 1);
  REQUIRE(lse["downstream"] == true);
  const json codes = of_type("comparison", "codes");
  REQUIRE(codes["verdict"] == "equal");  // layer.input; the window's follow
  const json summary = lines.back();
  REQUIRE(summary["type"] == "summary");
  REQUIRE(summary["failed"] == 2);
  REQUIRE(summary["downstream"] == 1);
  REQUIRE(summary["not_produced"] == 1);
  REQUIRE(summary["findings"] == 1);
  REQUIRE(summary["steps_not_compared"] == 4);
  REQUIRE(summary["exit_code"] == 1);
}

}  // namespace dsv4::report
