// Facts about residues, pages, addresses, forms, hits and graphs, each with a plan that shows it and one that
// does not.
#include <algorithm>

#include "scenario/coverage.hpp"
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

const std::string kNine = "  - prefill: {request: a, tokens: 9}\n";

TEST_CASE("every fact of a plan is in the catalogue") {
  for (const std::string& fact : facts(kNine + "  - decode: {requests: [a], repeat: 3}\n")) {
    INFO(fact);
    CHECK(is_coverage_fact(fact));
  }
}

TEST_CASE("residues of single rows") {
  check(facts(kNine + "  - decode: {requests: [a], repeat: 2}\n"), {"decode.mod4_1", "decode.mod4_2"},
        {"decode.mod4_0", "decode.mod4_3", "decode.mod128_1"});
  check(facts("  - prefill: {request: a, tokens: 127}\n  - decode: {requests: [a], repeat: 2}\n"),
        {"decode.mod128_127", "decode.mod128_0", "decode.mod4_3", "decode.mod4_0"},
        {"decode.mod128_1", "decode.mod128_126"});
}

TEST_CASE("edges of pages") {
  const std::string small = "cache: {swa_page: 4, c4_page: 2, index_page: 3, c128_page: 1}\n";
  // 9 tokens: window pages 0..3, 4..7, 8..; entries 0, 1: the ratio-4 page is full, the index page is not.
  check(facts(kNine, small), {"page.window_first", "page.c4_first", "page.c4_last", "page.index_first"},
        {"page.window_last", "page.index_last", "page.c128_first", "page.c128_last"});
  check(facts("  - prefill: {request: a, tokens: 8}\n", small), {"page.window_last"}, {"poison.page_tail"});
  check(facts(kNine, small), {"poison.page_tail", "select.empty_lanes"}, {});
}

TEST_CASE("addresses") {
  // Pages of 576,000 bytes: byte 2^31 lies in page 3728 (2,147,483,648 / 576,000 = 3728.3).
  const auto at = [](int first) {
    return "model: {layers: [swa]}\ncache: {swa_page: 4, pitch: 576000, pages: {pool: 9000, first: " +
           std::to_string(first) + "}}\n";
  };
  check(facts(kNine, at(3727)),
        {"address.beyond_2g", "address.straddles_2g", "cache.pitch", "cache.pool_fixed"},
        {"address.beyond_4g"});
  check(facts(kNine, at(3726)), {}, {"address.beyond_2g"});
  check(facts(kNine, at(3729)), {"address.beyond_2g"}, {"address.straddles_2g"});
  // 2^32 / 576,000 = 7456.5
  check(facts(kNine, at(7456)), {"address.beyond_4g", "address.straddles_4g"}, {"address.straddles_2g"});
  // At the natural pitch of 64 rows, 37,440 bytes: 2^31 / 37,440 = 57,358.0..., 2^32 / 37,440 = 114,716.0...
  check(facts(kNine, "model: {layers: [swa]}\ncache: {pages: {pool: 60000, first: 57359}}\n"),
        {"address.beyond_2g"}, {"address.beyond_4g"});
  check(facts(kNine, "model: {layers: [swa]}\ncache: {pages: {pool: 60000, first: 57358}}\n"), {},
        {"address.beyond_2g"});
}

TEST_CASE("forms and orders") {
  check(facts(kNine),
        {"allocate.sequential", "release.eager", "cache.kv_fp8", "cache.index_fp8", "state.ring_c4",
         "state.ring_c128"},
        {"allocate.lifo", "allocate.shuffled", "release.never", "cache.index_fp4", "cache.kv_plain",
         "cache.index_plain", "cache.page_of_one", "cache.page_of_256", "seeded.edited"});
  check(facts(kNine,
              "profile: {base: canonical, index_cache: fp4, kv_cache: bf16}\n"
              "cache: {c4_state: paged, c128_state: online, c128_page: 1, allocate: lifo, swa_page: 256}\n"),
        {"cache.index_fp4", "cache.kv_plain", "cache.page_of_one", "cache.page_of_256", "allocate.lifo"},
        {"cache.index_fp8", "cache.kv_fp8", "state.ring_c4", "state.ring_c128"});
}

TEST_CASE("batches") {
  const std::string two =
      "  - batch: [{prefill: {request: a, tokens: 2}}, {prefill: {request: b, tokens: 3}}]\n";
  check(facts(two + "  - decode: {requests: [a, b]}\n"), {},
        {"batch.reordered", "batch.wide", "batch.drained"});
  check(facts(two + "  - decode: {requests: [b, a]}\n"), {"batch.reordered"}, {});
  check(facts(kNine + "  - free: a\n  - prefill: {request: b, tokens: 2}\n"), {"batch.drained"}, {});
}

TEST_CASE("verify steps") {
  check(facts(kNine + "  - verify: {request: a, rows: 5, accept: 1}\n"),
        {"verify.start_mod4_1", "verify.wider_than_group"},
        {"verify.start_mod4_0", "verify.crosses_128", "verify.single_row"});
  const std::string near = "  - prefill: {request: a, tokens: 126}\n";
  check(facts(near + "  - verify: {request: a, rows: 3, accept: 1}\n"),
        {"verify.crosses_128", "verify.rejects_across_128"}, {"verify.wider_than_group"});
  check(facts(near + "  - verify: {request: a, rows: 3, accept: 3}\n"), {"verify.crosses_128"},
        {"verify.rejects_across_128"});
  check(facts(near + "  - verify: {request: a, rows: 1, accept: 1}\n"), {"verify.single_row"},
        {"verify.crosses_128"});
}

TEST_CASE("hits") {
  const std::string donor = "  - prefill: {request: a, tokens: 130}\n";
  const std::string hit = "  - prefix_hit: {request: b, from: a, tokens: 128}\n";
  check(facts(donor + hit), {"hit.live_donor", "hit.inside_page"}, {"hit.freed_donor", "hit.whole_donor"});
  check(facts(donor + "  - free: {request: a, keep: true}\n" + hit), {"hit.freed_donor"}, {"hit.live_donor"});
  check(facts("  - prefill: {request: a, tokens: 128}\n" + hit,
              "cache: {c4_page: 32, index_page: 8, c128_page: 1}\n"),
        {"hit.whole_donor", "hit.page_edge"}, {"hit.inside_page"});
}

TEST_CASE("lengths of lifecycle events") {
  check(facts("  - prefill: {request: a, tokens: 127}\n  - save: {request: a, as: s}\n  - preempt: a\n"),
        {"save.mod128_127", "preempt.mod128_127", "preempt.mod4_3"}, {"save.mod128_0", "preempt.mod4_1"});
  check(facts("  - prefill: {request: a, tokens: 130}\n  - rewind: {request: a, to: 127}\n"),
        {"lifecycle.rewind", "rewind.reopens_128", "rewind.reopens_4"}, {"rewind.to_zero"});
  check(facts("  - prefill: {request: a, tokens: 130}\n  - rewind: {request: a, to: 128}\n"),
        {"lifecycle.rewind"}, {"rewind.reopens_128", "rewind.reopens_4"});
  check(facts(kNine + "  - rewind: {request: a, to: 0}\n"), {"rewind.to_zero"}, {});
}

TEST_CASE("poison") {
  const std::string gone = kNine + "  - free: a\n";
  const std::string back = "  - prefill: {request: b, tokens: 9}\n";
  check(facts(gone + "  - poison: {what: freed, value: large}\n" + back), {"poison.large", "poison.reused"},
        {"poison.nan", "poison.unused"});
  check(facts(gone + back + "  - poison: {what: unused, value: nan}\n"), {"poison.nan", "poison.unused"},
        {"poison.large", "poison.reused"});
}

TEST_CASE("graphs") {
  const std::string head = "  - capture: {as: g, rows: 4}\n  - prefill: {request: a, tokens: 1}\n";
  check(facts(head), {"graph.captured"}, {"graph.padded", "graph.only_padding", "graph.no_entry"});
  check(facts(head + "  - replay_graph: {from: g, batch: [{decode: {requests: [a]}}]}\n"),
        {"graph.padded", "graph.no_entry"}, {"graph.verify", "graph.prefill", "graph.only_padding"});
  check(facts(head + "  - replay_graph: {from: g, batch: [{prefill: {request: a, tokens: 4}}]}\n"),
        {"graph.prefill"}, {"graph.padded", "graph.no_entry"});
  check(facts(head + "  - replay_graph: {from: g, batch: [{pad: 4}]}\n"), {"graph.only_padding"},
        {"graph.padded"});
}

}  // namespace
}  // namespace dsv4::scenario
