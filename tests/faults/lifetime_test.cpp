// Faults of lifecycle and lists as the lifetime checks see them: at which step, in which stage, whose row,
// and who wrote it last. All of it follows from the scenario by hand; tables of `first page 1` runs begin at
// slot 64.
#include <string>
#include <vector>

#include "compare/comparator.hpp"
#include "model/seeded.hpp"
#include "oracle/faults/catalogue.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

struct Expected {
  const char* scenario;
  const char* fault;
  std::int64_t step;
  const char* kind;
  const char* stage;
  const char* request;
  std::int64_t index;  ///< position or entry
  std::int64_t slot;
  const char* last_writer;
};

const Expected kExpected[]{
    // b took page 1 of a in step 2; a writes by its first table.
    {"swa-resume", "stale-block-table", 3, "write_foreign", "kv.window", "a", 0, 64,
     "b, position 0, in step 2 (kv.window)"},
    // Position 128 sees 1 .. 128; a window of 129 begins one earlier.
    {"swa-129", "window-width:width=129", 0, "read_stale", "attention.lists", "a", 1, 64,
     "a, position 0, in step 0 (kv.window)"},
    // Row 0 of b, token 3, is read 3 items early: the list of a's position 2 has ended, item 0 is what stood
    // at item 125.
    {"two-requests", "list-stride", 0, "read_stale", "attention.lists", "a", 1, 64,
     "a, position 0, in step 0 (kv.window)"},
    // Page 1 of 64 rows, offset 0, becomes slot 16.
    {"swa-2", "page-size-assumed", 0, "read_outside", "attention.lists", "a", 0, 16, "nobody"},
    // Rows of a ring one further on: position 0 in slot 1.
    {"csa-4", "state-next-slot", 0, "write_misplaced", "compress.state", "a", 0, 1, "nobody"},
    // Five rows from position 4, two accepted, the last four written: position 4 is live at length 6.
    {"verify-5-accept-2", "verify-keeps-last-rows", 1, "live_unwritten", "compress.state", "a", 4, 4,
     "nobody"},
    // Positions 4 and 5 see entry 1, which closes at position 7.
    {"csa-6", "visible-one-too-many", 0, "read_unwritten", "indexer.score", "a", 1, 65, "nobody"},
};

/// Findings of the first step that has any, lifetime checks only or with the write set.
std::vector<compare::Finding> first_findings(const std::string& scenario, const std::string& fault,
                                             bool writes) {
  const RunPlan plan =
      scenario::plan(scenario::load_scenario("tests/faults/scenarios/" + scenario + ".yaml"));
  const auto weights = seeded_weights(plan.config);
  auto engine = faults::inject(test::engine_of(plan), weights, faults::parse_injection(fault));
  Runner runner(*engine, Selection{});
  runner.check_lifetimes();
  if (writes) runner.check_writes();
  for (const StepPlan& step : plan.steps) {
    runner.run(step);
    if (!runner.write_findings().empty()) return runner.write_findings();
  }
  return {};
}

}  // namespace

TEST_CASE("a fault is found at its event, with the row's last writer") {
  for (const Expected& one : kExpected) {
    INFO(one.scenario << " " << one.fault);
    const std::vector<compare::Finding> found = first_findings(one.scenario, one.fault, false);
    REQUIRE_FALSE(found.empty());
    const compare::Finding& first = found.front();
    CHECK(first.step == one.step);
    CHECK(first.kind == one.kind);
    REQUIRE(first.stage);
    CHECK(name(*first.stage) == one.stage);
    CHECK(first.request == one.request);
    CHECK(first.position.value_or(first.entry.value_or(-1)) == one.index);
    CHECK(first.slot == one.slot);
    CHECK(first.last_writer == one.last_writer);
    CHECK_FALSE(first.event.empty());
  }
}

TEST_CASE("a stale table is also seen in the engine's own tables") {
  const auto found = first_findings("swa-resume", "stale-block-table", false);
  REQUIRE(found.size() == 2);
  CHECK(found[1].kind == "table_differs");
  CHECK(found[1].request == "a");
  CHECK(found[1].page == 1);
}

TEST_CASE("a stale table is a difference of state at the event, before anything else") {
  const RunPlan plan = scenario::plan(scenario::load_scenario("tests/faults/scenarios/swa-resume.yaml"));
  const auto right = test::engine_of(plan);
  const auto wrong = faults::inject(test::engine_of(plan), seeded_weights(plan.config),
                                    faults::parse_injection("stale-block-table"));
  Runner right_runner(*right, Selection{});
  Runner wrong_runner(*wrong, Selection{});
  LiveSource reference(right_runner, plan, "");
  LiveSource subject(wrong_runner, plan, "");
  compare::Comparator comparator(reference.info(), subject.info(), compare::Rules(compare::RuleSet::bits));
  while (auto left = reference.next()) {
    comparator.compare(*left, *subject.next());
    if (comparator.totals().first_divergence) break;
  }
  REQUIRE(comparator.totals().first_divergence);
  const compare::Comparison& first = *comparator.totals().first_divergence;
  CHECK(first.step == 3);
  CHECK(first.stage == "state");
  CHECK(first.tensor == "block_tables");
  CHECK(first.note == "pool window, request a, item 0: page 2 in the reference, page 1 in the subject");
}

TEST_CASE("memory that changes behind the engine's back is told whose it was") {
  const auto found = first_findings("swa-decode-2", "page-freed-early", true);
  // Three rows of page 1 are gone: the one of this step, and two of step 0.
  REQUIRE(found.size() == 3);
  CHECK(found[0].kind == "memory_differs_from_write");
  CHECK(found[0].last_writer == "a, position 2, in step 1 (kv.window)");
  CHECK(found[1].kind == "changed_without_write");
  CHECK(found[1].slot == 64);
  CHECK(found[1].last_writer == "a, position 0, in step 0 (kv.window)");
}

TEST_CASE("a commit of the wrong bank shows in memory") {
  // Of four rows from position 3 one is accepted: bank 0 has to hold what bank 1 does, position 3.
  const auto found = first_findings("online-verify", "rollback-commits-last-bank", true);
  REQUIRE(found.size() == 1);
  CHECK(found[0].step == 1);
  CHECK(found[0].kind == "memory_differs_from_write");
  CHECK(found[0].slot == 0);
  CHECK(found[0].last_writer == "a, position 3, in step 1 (compress.state)");
}

TEST_CASE("an engine that stops within a step tells what was found until then") {
  // Position 3 of four sees entry 0; its visible count 1 becomes 17, and the selection finds no scores for so
  // many.
  const RunPlan plan = scenario::plan(scenario::load_scenario("tests/faults/scenarios/csa-4.yaml"));
  const auto engine = faults::inject(test::engine_of(plan), seeded_weights(plan.config),
                                     faults::parse_injection("bitflip:indexer.score/visible:3:4"));
  Runner runner(*engine, Selection{});
  runner.check_lifetimes();
  REQUIRE_THROWS_AS(runner.run(plan.steps[0]), Error);
  const std::vector<compare::Finding>& found = runner.write_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == "read_unwritten");
  CHECK(found[0].stage == Stage::indexer_score);
  CHECK(found[0].entry == 1);
  CHECK(found[0].message.find("; and 15 rows more") != std::string::npos);
}

TEST_CASE("what is no fault of lifetimes gives no finding") {
  for (const faults::FaultInfo& fault : faults::catalogue()) {
    if (fault.verdict.empty()) continue;
    INFO(fault.name);
    const std::string injection =
        std::string(fault.name) + (fault.example.empty() ? "" : ":") + std::string(fault.example);
    CHECK(first_findings(std::string(fault.scenario), injection, true).empty());
  }
}
