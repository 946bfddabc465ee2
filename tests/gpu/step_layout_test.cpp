// The graph form of a step's layout says the same as the plain one: needs no device.
#include "gpu/step_layout.cuh"

#include <set>

#include "gpu/guard.cuh"
#include "model/error.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"
#include "support/catch.hpp"

namespace dsv4::gpu {
namespace {

RunPlan plan_of(const std::string& cache, const std::string& steps) {
  return scenario::plan(scenario::parse_scenario(
      "model: {preset: tiny, layers: [swa, csa, hca]}\nseed: 5\ncache: {" + cache + "}\nsteps:\n" + steps,
      "layout.yaml"));
}

const char* const kSteps =
    "  - batch: [{prefill: {request: a, tokens: 130}}, {prefill: {request: b, tokens: 3}}]\n"
    "  - fill: {request: c, tokens: 700}\n"
    "  - batch: [{decode: {requests: [a, b, c]}}, {pad: 1}]\n"
    "  - batch: [{pad: 1}, {decode: {requests: [c, a]}}, {pad: 1}]\n"
    "  - batch: [{verify: {request: b, rows: 3, accept: 1}}, {decode: {requests: [c]}}]\n"
    "  - batch: [{pad: 4}]\n"
    "  - decode: {requests: [a, b, c]}\n";

/// Slot of item `row` of a table as kernels find it.
std::int64_t follow(const StepLayout& layout, const Ints& offsets, std::size_t batch_row, std::int32_t row,
                    int page_rows) {
  const std::int64_t at = std::int64_t{offsets.host[batch_row]} + row / page_rows;
  REQUIRE(at >= 0);
  REQUIRE(at < layout.tables.size());
  const std::int32_t page = layout.tables.host[static_cast<std::size_t>(at)];
  return page < 0 ? -1 : std::int64_t{page} * page_rows + row % page_rows;
}

void check_prefix(const Ints& padded, const Ints& plain, std::int32_t padding) {
  REQUIRE(padded.size() >= plain.size());
  for (std::size_t i = 0; i < padded.host.size(); ++i) {
    CHECK(padded.host[i] == (i < plain.host.size() ? plain.host[i] : padding));
  }
}

void check_compressor(const CompressorStep& graph, const CompressorStep& plain, std::int64_t rows) {
  CHECK(graph.true_entries == plain.entries());
  CHECK(graph.true_state_rows == plain.state_row.size());
  CHECK(graph.entries() == rows);
  check_prefix(graph.entry_request, plain.entry_request, -1);
  check_prefix(graph.entry_index, plain.entry_index, -1);
  check_prefix(graph.entry_slot, plain.entry_slot, -1);
  check_prefix(graph.entry_position, plain.entry_position, 0);
  check_prefix(graph.source, plain.source, kSkipRow);
  check_prefix(graph.state_row, plain.state_row, -1);
  check_prefix(graph.state_slot, plain.state_slot, -1);
  check_prefix(graph.online, plain.online, 0);
}

void check_forms(const std::string& cache) {
  INFO(cache);
  RunPlan run = plan_of(cache, kSteps);
  std::set<std::size_t> sizes;
  for (StepPlan step : run.steps) {
    if (step.rows.size() > 4 || step.rows.empty()) continue;
    INFO(step.event);
    step.rows.resize(4);
    const Capacity capacity = graph_capacity(run.config, needed_capacity(run.config, run.steps[2]));
    StepLayout graph(run.config, step, capacity);
    const StepLayout plain(run.config, step);
    sizes.insert(graph.packed().size());
    CHECK(graph.widest_c4 == capacity.c4);
    CHECK(graph.true_widest.c4 == plain.widest_c4);
    CHECK(graph.true_widest.c128 == plain.widest_c128);
    CHECK(graph.rows.position.host == plain.rows.position.host);
    CHECK(graph.rows.window_slot.host == plain.rows.window_slot.host);
    check_compressor(graph.c4, plain.c4, 4);
    check_compressor(graph.c128, plain.c128, 4);
    check_compressor(graph.index, plain.index, 4);
    for (std::size_t row = 0; row < 4; ++row) {
      const std::int32_t p = plain.rows.position.host[row];
      if (p < 0) {
        CHECK(graph.rows.window_table.host[row] == -1);
        continue;
      }
      const auto same = [&](const Ints& in_graph, const Ints& in_plain, std::int32_t first, std::int32_t end,
                            Pool pool) {
        const int page = page_rows(run.config, pool);
        for (std::int32_t item = first; item < end; ++item) {
          CHECK(follow(graph, in_graph, row, item, page) == follow(plain, in_plain, row, item, page));
        }
      };
      same(graph.rows.window_table, plain.rows.window_table, std::max(0, p - kWindow + 1), p + 1,
           Pool::window);
      same(graph.rows.entries_c4_table, plain.rows.entries_c4_table, 0, (p + 1) / 4, Pool::entries_c4);
      same(graph.rows.index_table, plain.rows.index_table, 0, (p + 1) / 4, Pool::index);
      same(graph.rows.entries_c128_table, plain.rows.entries_c128_table, 0, (p + 1) / 128,
           Pool::entries_c128);
    }
  }
  CHECK(sizes.size() == 1);  // a capture's launch parameters hold for every step
}

TEST_CASE("every step of a row count has one graph layout, which says what the plain one says") {
  check_forms("allocate: shuffled");
  check_forms("swa_page: 16, c4_page: 8, index_page: 16, c128_page: 1, swa_release: never");
  check_forms("swa_page: 100, c4_state: paged, c128_state: paged, allocate: lifo");
  check_forms("c4_state: page4align, c128_state: online");
}

TEST_CASE("held tables are the plan's, and a page changed on the device shows") {
  const RunPlan run = plan_of("allocate: shuffled", kSteps);
  for (const std::size_t at : {0U, 2U, 4U}) {
    const StepPlan& step = run.steps[at];
    std::vector<std::optional<Capacity>> forms{std::nullopt};
    if (at != 0) forms.push_back(graph_capacity(run.config, needed_capacity(run.config, step)));
    for (const std::optional<Capacity>& form : forms) {
      const StepLayout layout(run.config, step, form);
      std::vector<std::int32_t> values = layout.tables.host;
      const auto differing = [&] {
        std::set<std::pair<std::int32_t, Pool>> found;
        std::size_t items = 0;
        for (const HeldTable& held : layout.held_tables(run.config, step, values)) {
          const auto request = std::find_if(step.requests.begin(), step.requests.end(),
                                            [&](const RequestStep& one) { return one.request == held.request; });
          REQUIRE(request != step.requests.end());
          for (std::size_t i = 0; i < held.pages.size(); ++i, ++items) {
            const auto& table = (*request->tables)[static_cast<std::size_t>(held.pool)];
            if (table.at(static_cast<std::size_t>(held.first) + i) != held.pages[i]) found.insert({held.request, held.pool});
          }
        }
        CHECK(items > 0);
        return found;
      };
      CHECK(differing().empty());
      // The window table of the first request begins the array (eager), or belongs to its first row (graph).
      const auto page = std::find_if(values.begin(), values.end(), [](std::int32_t value) { return value >= 0; });
      REQUIRE(page != values.end());
      ++*page;
      const auto found = differing();
      REQUIRE(found.size() == 1);
      CHECK(found.begin()->second == Pool::window);
    }
  }
}

TEST_CASE("capacity is a power of two of at least 4096 tokens, within what the pools hold") {
  const RunPlan run = plan_of("pages: {pool: 1000}", kSteps);
  CHECK(graph_capacity(run.config, {}).c4 == 1024);
  CHECK(graph_capacity(run.config, {1024, 32}).c4 == 1024);
  CHECK(graph_capacity(run.config, {1025, 0}).c4 == 2048);
  CHECK(graph_capacity(run.config, {1025, 33}).c128 == 64);
  CHECK(graph_capacity(run.config, {0, 32}).c128 == 32);
  const RunPlan small = plan_of("", kSteps);
  const auto pages = small.config.pool_pages[static_cast<std::size_t>(Pool::entries_c4)];
  CHECK(graph_capacity(small.config, {}).c4 == std::min<std::int64_t>(1024, (pages - 1) * 64));
  CHECK_THROWS_AS(StepLayout(run.config, run.steps[2], Capacity{10, 1}), InternalError);
}

TEST_CASE("tables are checked before kernels follow them") {
  const RunPlan run = plan_of("", kSteps);
  const StepPlan& good = run.steps[2];
  for (const Pool pool : {Pool::window, Pool::entries_c4, Pool::entries_c128, Pool::index}) {
    for (const std::int32_t page :
         {0, -2, static_cast<std::int32_t>(run.config.pool_pages[static_cast<std::size_t>(pool)])}) {
      StepPlan bad = good;
      auto tables = std::make_shared<BlockTables>(*bad.requests[2].tables);
      (*tables)[static_cast<std::size_t>(pool)].back() = page;
      bad.requests[2].tables = tables;
      CHECK_THROWS_AS(StepLayout(run.config, bad), InternalError);
    }
    StepPlan released = good;
    auto tables = std::make_shared<BlockTables>(*released.requests[2].tables);
    (*tables)[static_cast<std::size_t>(pool)][0] = -1;  // of a window long passed, or of a visible entry
    released.requests[2].tables = tables;
    if (pool == Pool::window) {
      CHECK_NOTHROW(StepLayout(run.config, released));
    } else {
      CHECK_THROWS_AS(StepLayout(run.config, released), InternalError);
    }
  }
}

TEST_CASE("a report holds site and element, and the first site is the smallest") {
  const IndexSite site{60, Stage::attention_core, TensorId::compressed_slots};
  const std::uint64_t report = report_of(site, 123456789012);
  CHECK(site_of(report).layer == 60);
  CHECK(site_of(report).stage == Stage::attention_core);
  CHECK(site_of(report).tensor == TensorId::compressed_slots);
  CHECK(element_of(report) == 123456789012);
  CHECK(report < report_of({61, Stage::indexer_select, TensorId::visible}, 0));
  CHECK(report_of({60, Stage::indexer_select, TensorId::visible}, 7) < report);
  CHECK(report < kNothingReported);
}

}  // namespace
}  // namespace dsv4::gpu
