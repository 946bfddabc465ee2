#include <cmath>
#include <limits>
#include <sstream>

#include "compare/comparator.hpp"
#include "compare/synthetic.hpp"
#include "report/reporter.hpp"
#include "report/wording.hpp"
#include "support/catch.hpp"

namespace dsv4::report {
namespace {

struct Run {
  SourceInfo info = test::synthetic_info({LayerKind::csa});
  StepObservation reference = test::synthetic_step(info);
  StepObservation subject = reference;
  compare::Rules rules{compare::RuleSet::bits};
  std::ostringstream out;

  Tensor& tensor(TensorId id) { return subject.layers[0].tensors.at(id); }
  std::string text(bool verbose = false) {
    compare::Comparator comparator(info, info, rules);
    const compare::StepComparison step = comparator.compare(reference, subject);
    const auto reporter = text_reporter(out, {verbose});
    reporter->config({"replay", "tiny.yaml", &info, &info, &rules});
    reporter->step({3, subject.event, 6, 0}, step);
    if (comparator.totals().first_divergence) {
      reporter->first_divergence(*comparator.totals().first_divergence, subject.event, comparator.totals(),
                                 "dsv4-oracle replay tiny.yaml --steps 3:4");
    }
    reporter->summary({comparator.totals(), 0, comparator.totals().passed() ? 0 : 1});
    return out.str();
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run without a difference says what was compared, in few lines") {
  Run run;
  const std::string text = run.text();
  REQUIRE(contains(text, "replay tiny.yaml: reference reference (cpu), profile canonical, subject"));
  REQUIRE(contains(text, " compared in 1 steps ("));
  REQUIRE(contains(text, " equal), 0 failed here, 0 downstream, 0 skipped, 0 not produced, 0 findings"));
  REQUIRE(contains(text, "don't care: "));
  REQUIRE_FALSE(contains(text, "step 3:"));
  REQUIRE_FALSE(contains(text, "DIVERGED"));
}

TEST_CASE("the divergence block: where, both values, distance, extent, inputs, reproduce") {
  Run run;
  test::set<std::uint16_t>(run.reference.layers[0].tensors[TensorId::window_kv], 4 * 512 + 70,
                           0x4048);                                                 // 3.125
  test::set<std::uint16_t>(run.tensor(TensorId::window_kv), 4 * 512 + 70, 0x4148);  // 12.5
  run.tensor(TensorId::hidden_out);
  run.subject.layers[0].tensors.erase(TensorId::hidden_out);
  const std::string text = run.text();
  REQUIRE(contains(text,
                   "DIVERGED at step 3, layer 0, stage kv.window, tensor kv  (verdict diverged, rule bits)"));
  REQUIRE(
      contains(text,
               "request b, position 10 (mod 4 = 2, mod 128 = 10, mod page = 10), dim 70, slot 138, page 2, "
               "offset 10   coordinate [4, 70]"));
  REQUIRE(contains(text, "reference 3.125           0x4048"));
  REQUIRE(contains(text, "subject   12.5            0x4148"));
  REQUIRE(contains(text, "worst: 256 steps of the format, absolute 9.38e+00, relative 3.00e+00"));
  REQUIRE(contains(
      text, "1 of 3072 elements differ, 1 beyond the rule; all at token 4; all at dim 70; 1 of 2 requests"));
  REQUIRE(
      contains(text,
               "IDENTICAL (kv.window/normed, layer.input/hidden, layer.input/codes, layer.input/scales)  ->  "
               "introduced here, not inherited"));
  REQUIRE(contains(text, "reproduce dsv4-oracle replay tiny.yaml --steps 3:4"));
  REQUIRE(contains(text, "1 not produced (not produced by the subject: 1)"));
}

TEST_CASE("a digest, a tie and an inherited difference are said as such") {
  Run digest;
  digest.subject.layers[0].state_digests[Cache::entries] = std::string(32, 'a');
  REQUIRE(contains(digest.text(), "digest " + std::string(32, 'a')));

  Run inherited;
  test::set<std::uint16_t>(inherited.tensor(TensorId::q_latent), 0, 0x7F80);
  test::set<std::uint16_t>(inherited.tensor(TensorId::q), 0, 0x7FC0);
  const std::string text = inherited.text(true);
  REQUIRE(contains(text, "inf or NaN"));
  REQUIRE(contains(text, "subject: 1 elements, first at [0, 0] (request a, position 8"));
  REQUIRE(contains(text, "q.up             q                diverged       1 of 12288  downstream"));
}

TEST_CASE("nothing compared is said loudly") {
  std::ostringstream out;
  text_reporter(out)->summary({});
  REQUIRE(contains(out.str(), "NOTHING WAS COMPARED"));
}

TEST_CASE("numbers are spelled with what float32 needs") {
  REQUIRE(number(1027) == "1027");
  REQUIRE(number(-0.0) == "-0");
  REQUIRE(number(0.1F) == "0.100000001");
  REQUIRE(number(-std::numeric_limits<double>::infinity()) == "-inf");
  REQUIRE(number(std::nan("")) == "nan");
  compare::ElementValue value{"0x00000403", 1027, {}, 0.4375};
  REQUIRE(describe(value) == "1027            0x00000403   score 0.4375");
}

}  // namespace dsv4::report

namespace dsv4::report {

TEST_CASE("a first failure with other inputs ends in a hint, one that was introduced does not") {
  Run introduced;
  test::flip(introduced.tensor(TensorId::q_latent), 3);
  REQUIRE_FALSE(contains(introduced.text(), "hint:"));

  // The inputs differ within the values rule; what is made of them is far off.
  Run inherited;
  inherited.rules = compare::Rules(compare::RuleSet::values);
  test::flip(inherited.tensor(TensorId::q_latent), 3);
  test::set<std::uint16_t>(inherited.tensor(TensorId::q_raw), 3, 0x4648);
  const std::string text = inherited.text();
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  REQUIRE(last.starts_with("hint: q.up/raw, the first that failed, had other inputs on the two sides"));
  REQUIRE(contains(last, "--feed reference"));
}

}  // namespace dsv4::report
