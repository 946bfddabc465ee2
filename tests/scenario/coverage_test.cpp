// Facts that a plan shows, and facts that it must not show.
#include "scenario/coverage.hpp"

#include <algorithm>

#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

std::set<std::string> facts(const std::string& steps, const std::string& head = "") {
  return plan_coverage(test::planned(head + "steps:\n" + steps));
}

void check(const std::set<std::string>& found, const std::vector<std::string>& there,
           const std::vector<std::string>& absent) {
  for (const std::string& fact : there) {
    INFO(fact);
    CHECK(is_coverage_fact(fact));
    CHECK(found.contains(fact));
  }
  for (const std::string& fact : absent) {
    INFO(fact);
    CHECK(is_coverage_fact(fact));
    CHECK_FALSE(found.contains(fact));
  }
}

TEST_CASE("the catalogue is sorted, without repeats, and holds every fact that is found") {
  const auto catalogue = coverage_catalogue();
  CHECK(std::ranges::is_sorted(catalogue, {}, [](const CoverageFact& fact) {
    return std::string(fact.name.substr(0, fact.name.find('.')));
  }));
  std::set<std::string_view> names;
  for (const CoverageFact& fact : catalogue) {
    CHECK(names.insert(fact.name).second);
    CHECK_FALSE(fact.description.empty());
  }
}

TEST_CASE("groups and chunks") {
  check(facts("  - prefill: {request: a, tokens: 3}\n"),
        {"window.first_token", "window.partial", "select.empty"},
        {"compress.overlap_first_window", "compress.close_in_prefill", "window.full", "select.all_visible"});
  check(facts("  - prefill: {request: a, tokens: 3}\n  - decode: {requests: [a]}\n"),
        {"compress.overlap_first_window", "compress.close_in_decode", "select.all_visible"},
        {"compress.close_in_prefill", "compress.overlap_across_steps", "compress.two_groups_one_step"});
  check(facts("  - prefill: {request: a, tokens: 5}\n  - prefill: {request: a, tokens: 4}\n"),
        {"compress.overlap_across_steps", "chunk.mid_group", "chunk.start_mod4_1"},
        {"compress.two_groups_one_step"});
  check(facts("  - prefill: {request: a, tokens: 127}\n"),
        {"chunk.end_mod128_127", "select.exact", "select.cut"},
        {"compress.hca_closed", "window.full", "chunk.long"});
  check(facts("  - prefill: {request: a, tokens: 129}\n"),
        {"chunk.end_mod128_1", "compress.hca_closed", "window.full", "chunk.long", "ring.wrapped_c4",
         "ring.wrapped_c128"},
        {"compress.hca_across_steps", "page.released_window"});
}

TEST_CASE("selection") {
  // K = 8: 35 tokens see at most 8 entries, 36 see 9.
  check(facts("  - prefill: {request: a, tokens: 31}\n"), {"select.all_visible"},
        {"select.exact", "select.cut"});
  check(facts("  - prefill: {request: a, tokens: 35}\n"), {"select.all_visible", "select.exact"},
        {"select.cut"});
  check(facts("  - prefill: {request: a, tokens: 36}\n"), {"select.cut"}, {});
  check(facts("  - prefill: {request: a, tokens: 36}\n", "model: {layers: [swa, hca]}\n"), {},
        {"select.cut", "select.empty", "select.all_visible", "compress.close_in_prefill"});
}

TEST_CASE("verify") {
  check(facts("  - prefill: {request: a, tokens: 6}\n  - verify: {request: a, rows: 3, accept: 1}\n"),
        {"verify.rejected", "verify.group_closes_in_rejected", "ring.doubled", "compress.close_in_verify"},
        {"verify.all_accepted", "verify.none_accepted", "verify.group_closes_in_accepted",
         "verify.spans_three_groups", "page.cut_back", "online.bank_copied"});
  check(facts("  - prefill: {request: a, tokens: 7}\n  - verify: {request: a, rows: 6, accept: 6}\n",
              "cache: {c128_state: online}\n"),
        {"verify.all_accepted", "verify.group_closes_in_accepted", "verify.spans_three_groups",
         "online.bank_copied"},
        {"verify.rejected", "verify.group_closes_in_rejected"});
  check(facts("  - prefill: {request: a, tokens: 63}\n  - verify: {request: a, rows: 2, accept: 1}\n"),
        {"page.cut_back", "page.edge_crossed"}, {"page.released_window"});
}

TEST_CASE("pages, batches and lifecycle") {
  check(facts("  - prefill: {request: a, tokens: 9}\n  - free: a\n  - prefill: {request: a, tokens: 9}\n"),
        {"page.reused", "page.released", "lifecycle.free", "lifecycle.readmitted", "state.base_reused"},
        {"page.shared", "page.copied", "poison.freed", "lifecycle.free_keep", "page.released_window"});
  check(facts("  - batch: [{pad: 1}]\n"), {"batch.only_padding", "page.null_guard"},
        {"batch.padding", "page.released"});
  check(facts("  - prefill: {request: a, tokens: 9}\n  - batch: [{decode: {requests: [a]}}, {prefill: "
              "{request: b, tokens: 2}}]\n"),
        {"batch.mixed", "batch.several_requests"}, {"batch.padding", "batch.only_padding"});
  check(facts("  - prefill: {request: a, tokens: 130}\n  - prefix_hit: {request: b, from: a, tokens: 128}\n"),
        {"restore.prefix_hit", "page.copied", "restore.kept_rows"},
        {"page.copied_on_write", "restore.mid_group"});
  check(facts("  - prefill: {request: a, tokens: 130}\n  - rewind: {request: a, to: 130}\n"),
        {"restore.nothing_missing"}, {"restore.rewound", "page.cut_back"});
  check(facts("  - prefill: {request: a, tokens: 13}\n  - preempt: a\n  - resume: {request: a, chunk: 8}\n"),
        {"lifecycle.preempt", "restore.resumed", "restore.chunked", "restore.mid_group"}, {"restore.loaded"});
  check(facts("  - prefill: {request: a, tokens: 13}\n  - preempt: a\n  - resume: a\n"), {"restore.resumed"},
        {"restore.chunked"});
}

}  // namespace
}  // namespace dsv4::scenario
