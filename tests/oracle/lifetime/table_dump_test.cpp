// Tables of a run against those of a dump: pages that the scenario hands out, worked out by hand, and a dump
// that a program edited that knows HDF5 only.
#include <hdf5.h>
#include <unistd.h>

#include <cstdio>

#include "compare/comparator.hpp"
#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "oracle/lockstep.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

using Rows = std::vector<std::vector<std::int32_t>>;

Rows rows(const Tensor& table) {
  Rows all;
  const auto values = table.as<std::int32_t>();
  const auto width = static_cast<std::size_t>(table.dim(1));
  for (std::size_t at = 0; at < values.size(); at += width)
    all.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                     values.begin() + static_cast<std::ptrdiff_t>(at + width));
  return all;
}

/// a has window pages 1 and 2, b page 3; a is freed, c takes a page of it.
RunPlan plan() {
  return test::plan_of("swa",
                       "  - prefill: {request: a, tokens: 65}\n"
                       "  - prefill: {request: b, tokens: 2}\n"
                       "  - free: a\n"
                       "  - prefill: {request: c, tokens: 1}\n"
                       "  - decode: {requests: [b, c]}\n");
}

class Dump {
 public:
  explicit Dump(const RunPlan& run) : path_("/tmp/dsv4_tables_test_" + std::to_string(getpid()) + ".h5") {
    const auto engine = test::engine_of(run);
    Runner runner(*engine, Selection{});
    LiveSource source(runner, run, "");
    io::DumpWriter writer(path_, source.info());
    while (auto step = source.next()) writer.write(*step);
    writer.finish();
  }
  ~Dump() { std::remove(path_.c_str()); }

  /// Replaces a value in a table of a step.
  void edit(const std::string& table, std::int32_t from, std::int32_t to, std::size_t element) const {
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t set = H5Dopen2(file, table.c_str(), H5P_DEFAULT);
    REQUIRE(set >= 0);
    std::vector<std::int32_t> values(64);
    REQUIRE(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    REQUIRE(values[element] == from);
    values[element] = to;
    REQUIRE(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(set);
    H5Fclose(file);
  }

  /// A run of the plan held against the dump.
  compare::Totals against(const RunPlan& run) const {
    const auto engine = test::engine_of(run);
    Runner runner(*engine, Selection{});
    LiveSource subject(runner, run, "");
    io::DumpReader reference(path_);
    compare::Comparator comparator(reference.info(), subject.info(), compare::Rules(compare::RuleSet::bits));
    Lockstep lockstep(subject, reference, Feed::independent);
    while (auto pair = lockstep.next()) {
      comparator.compare(*pair->reference, pair->subject);
      if (comparator.totals().first_divergence) break;
    }
    return comparator.totals();
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("tables after each step are those that the events make") {
  const RunPlan run = plan();
  const auto engine = test::engine_of(run);
  const auto steps = test::run_all(*engine, run);
  CHECK(rows(steps[0].tables->blocks) == Rows{{0, 0, 0, 1}, {0, 0, 1, 2}});
  CHECK(rows(steps[1].tables->blocks) == Rows{{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 1, 0, 3}});
  CHECK(rows(steps[1].tables->holders) == Rows{{0, 1, 1}, {0, 2, 1}, {0, 3, 1}});
  CHECK(rows(steps[1].tables->free).empty());
  CHECK(rows(steps[1].tables->bases) == Rows{{0, 0}, {1, 1}});
  CHECK(rows(steps[2].tables->blocks) == Rows{{0, 1, 0, 3}});
  CHECK(rows(steps[2].tables->free) == Rows{{0, 1}, {0, 2}});
  CHECK(rows(steps[2].tables->bases) == Rows{{1, 1}});
  // The pool is used up, so the page that was freed first is handed out again; so is the lowest base.
  CHECK(rows(steps[3].tables->blocks) == Rows{{0, 1, 0, 3}, {0, 2, 0, 1}});
  CHECK(rows(steps[3].tables->free) == Rows{{0, 2}});
  CHECK(rows(steps[3].tables->bases) == Rows{{1, 1}, {2, 0}});
}

TEST_CASE("shared and kept pages are counted") {
  const RunPlan run = test::plan_of("csa",
                                    "  - prefill: {request: a, tokens: 256}\n"
                                    "  - prefix_hit: {request: b, from: a, tokens: 256}\n"
                                    "  - free: {request: a, keep: true}\n"
                                    "  - free: b\n"
                                    "  - evict: {request: a, what: kept}\n");
  const auto engine = test::engine_of(run);
  const auto steps = test::run_all(*engine, run);
  const auto holders = [&](std::size_t step, Pool pool) {
    std::vector<std::int32_t> counts;
    for (const auto& row : rows(steps[step].tables->holders)) {
      if (row[0] == static_cast<std::int32_t>(pool)) counts.push_back(row[2]);
    }
    return counts;
  };
  for (const Pool pool : {Pool::entries_c4, Pool::index}) {
    CHECK(holders(0, pool) == std::vector{1});
    CHECK(holders(1, pool) == std::vector{2});
    CHECK(holders(2, pool) == std::vector{2});
    CHECK(holders(3, pool) == std::vector{1});
    CHECK(holders(4, pool).empty());
  }
}

TEST_CASE("a dump whose table was edited differs in that step and no earlier one") {
  const RunPlan run = plan();
  const Dump dump(run);
  REQUIRE(dump.against(run).passed());
  // b's only page, after `free: a`.
  dump.edit("/state/000002/tables/block_tables", 3, 2, 3);
  const compare::Totals totals = dump.against(run);
  REQUIRE(totals.first_divergence);
  CHECK(totals.first_divergence->step == 2);
  CHECK(totals.first_divergence->stage == "state");
  CHECK(totals.first_divergence->tensor == "block_tables");
  CHECK(totals.first_divergence->meaning.request == "b");
  CHECK(totals.first_divergence->note ==
        "pool window, request b, item 0: page 2 in the reference, page 3 in the subject");
  CHECK(totals.failed == 1);
}

TEST_CASE("a dump whose free list was edited differs in that step") {
  const RunPlan run = plan();
  const Dump dump(run);
  dump.edit("/state/000003/tables/free_pages", 2, 1, 1);  // page 1 is c's by now
  const compare::Totals totals = dump.against(run);
  REQUIRE(totals.first_divergence);
  CHECK(totals.first_divergence->step == 3);
  CHECK(totals.first_divergence->tensor == "free_pages");
  CHECK(totals.first_divergence->note ==
        "pool window, page 1: is there in the reference, nothing in the subject");
}
