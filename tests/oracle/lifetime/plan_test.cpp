// Plans alone, without an engine: those of the repository's scripts contradict themselves nowhere, and one
// mistake that an allocator makes in them is found at the event that made it.
#include "scenario/plan.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "model/error.hpp"
#include "oracle/lifetime/checker.hpp"
#include "scenario/scenario.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;
using compare::Finding;

namespace {

/// The findings of the first step that has any, of an engine that writes all that the plans permit.
std::vector<Finding> first_findings(const RunPlan& plan) {
  PageLedger ledger(plan.config);
  LifetimeChecker checker(plan.config, ledger);
  for (const StepPlan& step : plan.steps) {
    ledger.begin(step);
    checker.begin(step);
    checker.assume_right(step);
    ledger.end(step);
    std::vector<Finding> found = checker.end(step);
    if (!found.empty()) return found;
  }
  return {};
}

/// a has 700 tokens in two window pages and more that went; b shares its first 512.
RunPlan plan_of(const std::string& cache = "") {
  return scenario::plan(
      scenario::parse_scenario("model: {preset: tiny, layers: [swa, csa, hca]}\nseed: 3\ncache: {" + cache +
                                   "}\nsteps:\n"
                                   "  - prefill: {request: a, tokens: 700}\n"              // 0
                                   "  - prefill: {request: c, tokens: 300}\n"              // 1
                                   "  - prefix_hit: {request: b, from: a, tokens: 640}\n"  // 2
                                   "  - decode: {requests: [a, b, c]}\n"                   // 3
                                   "  - free: c\n"                                         // 4
                                   "  - rewind: {request: a, to: 640}\n"                   // 5
                                   "  - decode: {requests: [a, b]}\n"                      // 6
                                   "  - preempt: b\n"                                      // 7
                                   "  - resume: {request: b}\n"                            // 8
                                   "  - decode: {requests: [a, b], repeat: 4}\n",          // 9 ..
                               "plan.yaml"));
}

void expect(const RunPlan& plan, std::int64_t step, const std::string& kind, const std::string& owner = "") {
  const std::vector<Finding> found = first_findings(plan);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front().step == step);
  CHECK(found.front().kind == kind);
  if (!owner.empty()) CHECK(found.front().owner == owner);
}

}  // namespace

TEST_CASE("no script's plan contradicts itself, in no form of its caches") {
  int plans = 0;
  for (const char* folder : {"scenarios", "tests/faults/scenarios"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".yaml") continue;
      const auto runs = scenario::expand(scenario::load_scenario(file.path().string()));
      for (std::size_t run = 0; run < runs.size(); run += std::max<std::size_t>(runs.size() / 4, 1)) {
        for (const int form : {0, 1, 2}) {
          scenario::Overrides other;
          if (form > 0) other.c4_state = form == 1 ? C4State::paged : C4State::page4align;
          if (form > 0) other.c128_state = form == 1 ? C128State::paged : C128State::ring;
          if (form > 0) other.allocate = form == 1 ? Allocate::shuffled : Allocate::lifo;
          std::optional<RunPlan> plan;
          try {
            plan = scenario::plan(runs[run], other);
          } catch (const UsageError&) {
            continue;  // a fixed pool that is too small for another form
          }
          const auto found = first_findings(*plan);
          INFO(runs[run].name << " form " << form << (found.empty() ? "" : ": " + found.front().message));
          REQUIRE(found.empty());
          ++plans;
        }
      }
    }
  }
  CHECK(plans > 300);
}

TEST_CASE("a right plan is right") {
  CHECK(first_findings(plan_of()).empty());
  CHECK(first_findings(plan_of("c4_state: paged, c128_state: paged, allocate: shuffled")).empty());
  CHECK(first_findings(plan_of("c4_state: page4align, c128_state: online, allocate: lifo")).empty());
}

TEST_CASE("a page freed early") {
  RunPlan plan = plan_of();
  // The last window page of c goes in step 3 already.
  const LiveRequest& c = plan.steps[3].live[1];
  REQUIRE(plan.config.requests[static_cast<std::size_t>(c.request)] == "c");
  plan.steps[3].released.push_back(
      {Pool::window, (*c.tables)[static_cast<std::size_t>(Pool::window)].back()});
  expect(plan, 3, "page_freed_in_use", "c");
}

TEST_CASE("a page handed out while it is held") {
  RunPlan plan = plan_of();
  StepPlan& hit = plan.steps[2];
  const std::int32_t of_a = (*plan.steps[1].live[0].tables)[static_cast<std::size_t>(Pool::window)].back();
  const auto fresh = std::find_if(hit.allocated.begin(), hit.allocated.end(),
                                  [](const PageRef& page) { return page.pool == Pool::window; });
  REQUIRE(fresh != hit.allocated.end());
  fresh->page = of_a;
  expect(plan, 2, "page_handed_out_twice", "a");
}

TEST_CASE("a partly covered page that is not copied, or one row too few") {
  for (const bool whole : {true, false}) {
    RunPlan plan = plan_of("c4_page: 64, c128_page: 2");  // 160 and 5 entries: the last page is half full
    StepPlan& hit = plan.steps[2];
    REQUIRE(hit.copies.size() == 3);
    const auto copy = std::find_if(hit.copies.begin(), hit.copies.end(),
                                   [](const PageCopy& one) { return one.pool == Pool::entries_c4; });
    REQUIRE(copy->rows == 32);
    if (whole) {
      hit.copies.erase(copy);
    } else {
      --copy->rows;
    }
    const auto found = first_findings(plan);
    REQUIRE_FALSE(found.empty());
    CHECK(found[0].step == 2);
    CHECK(found[0].kind == "live_unwritten");
    CHECK(found[0].cache == Cache::entries);
    CHECK(found[0].request == "b");
    CHECK(found[0].entry == (whole ? 128 : 159));
  }
}

TEST_CASE("a prefix taken from another request") {
  RunPlan plan = plan_of();
  // c's tokens are others; b's pages stay those of a.
  REQUIRE(plan.steps[2].prefix[0].source == 0);
  plan.steps[2].prefix[0].source = 1;
  const auto found = first_findings(plan);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0].step == 2);
  CHECK(found[0].kind == "live_stale");
  CHECK(found[0].request == "b");
  CHECK(found[0].last_writer == "a, entry 0, in step 0 (compress.finish)");
}

TEST_CASE("a restore that leaves out a row that is missing") {
  struct Case {
    std::int32_t KeepFrom::*from;
    Cache cache;
    LayerKind kind;
  };
  const Case cases[]{{&KeepFrom::window, Cache::window, LayerKind::swa},
                     {&KeepFrom::state_c4, Cache::state, LayerKind::csa},
                     {&KeepFrom::entries_c128, Cache::entries, LayerKind::hca}};
  for (const Case& one : cases) {
    RunPlan plan = plan_of();
    StepPlan& restore = plan.steps[8];  // of all of b
    REQUIRE(restore.kind == StepKind::restore);
    REQUIRE(restore.requests.size() == 1);
    const std::int32_t n = restore.requests[0].committed;
    const std::int32_t first = one.cache == Cache::window  ? first_live_window(n)
                               : one.cache == Cache::state ? first_live_state(LayerKind::csa, n)
                                                           : 0;
    restore.requests[0].from.*one.from = first + 1;
    const auto found = first_findings(plan);
    REQUIRE_FALSE(found.empty());
    CHECK(found[0].step == 8);
    CHECK(found[0].kind == "live_unwritten");
    CHECK(found[0].cache == one.cache);
    CHECK(plan.config.layers[static_cast<std::size_t>(found[0].layer)] == one.kind);
    CHECK(found[0].position.value_or(found[0].entry.value_or(-1)) == first);
  }
}

TEST_CASE("a rewind that keeps a row of a discarded token") {
  RunPlan plan = plan_of();
  StepPlan& rewind = plan.steps[5];
  // At length 640 the ring holds positions 696 .. 700 of what is gone; nothing of ratio 4 is recomputed.
  REQUIRE(rewind.kind == StepKind::restore);
  rewind.requests[0].from.state_c4 = 640;
  const auto found = first_findings(plan);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0].step == 5);
  CHECK(found[0].kind == "live_stale");
  CHECK(found[0].cache == Cache::state);
  CHECK(found[0].position == 636);
}

TEST_CASE("a table that goes back to an older one") {
  RunPlan plan = plan_of("allocate: lifo");
  StepPlan& resume = plan.steps[8];
  const std::int32_t now = (*resume.requests[0].tables)[static_cast<std::size_t>(Pool::entries_c4)].front();
  auto stale = std::make_shared<BlockTables>(*resume.requests[0].tables);
  const std::int32_t of_a = (*plan.steps[6].live[0].tables)[static_cast<std::size_t>(Pool::window)].back();
  REQUIRE(now > 0);
  (*stale)[static_cast<std::size_t>(Pool::window)].back() = of_a;
  resume.requests[0].tables = stale;
  expect(plan, 8, "page_of_two", "b");
}
