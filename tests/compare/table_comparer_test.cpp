// Tables of a step, written by hand.
#include "compare/comparator.hpp"
#include "compare/synthetic.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::compare;

namespace {

Tensor table(std::vector<std::vector<std::int32_t>> rows, std::int64_t columns) {
  Tensor tensor(DType::int32, {static_cast<std::int64_t>(rows.size()), columns});
  auto out = tensor.as<std::int32_t>().begin();
  for (const auto& row : rows) out = std::copy(row.begin(), row.end(), out);
  return tensor;
}

/// a holds window pages 1 and 3 as items 0 and 1, b page 2; index page 4 is shared; window page 5 was given
/// back.
TableState tables() {
  return {table({{0, 0, 0, 1}, {0, 0, 1, 3}, {0, 1, 0, 2}, {3, 0, 0, 4}, {3, 1, 0, 4}}, 4),
          table({{0, 1, 1}, {0, 2, 1}, {0, 3, 1}, {3, 4, 2}}, 3), table({{0, 5}}, 2),
          table({{0, 0}, {1, 1}}, 2)};
}

/// The comparisons of tables that fail.
std::vector<Comparison> differing(const TableState& subject_tables) {
  const SourceInfo info = test::synthetic_info({LayerKind::swa});
  StepObservation reference = test::synthetic_step(info);
  StepObservation subject = reference;
  reference.tables = tables();
  subject.tables = subject_tables;
  Comparator comparator(info, info, Rules(RuleSet::values));
  std::vector<Comparison> failed;
  int compared = 0;
  for (const Comparison& one : comparator.compare(reference, subject).comparisons) {
    if (one.stage == "state" && one.layer == -1) ++compared;
    if (one.failed) failed.push_back(one);
  }
  CHECK(compared == 4);
  return failed;
}

}  // namespace

TEST_CASE("equal tables differ in nothing") {
  CHECK(differing(tables()).empty());
}

TEST_CASE("a table that names another page says pool, request, item and both pages") {
  TableState wrong = tables();
  wrong.blocks.as<std::int32_t>()[2 * 4 + 3] = 3;  // b's first page is a's second
  const auto found = differing(wrong);
  REQUIRE(found.size() == 1);
  CHECK(found[0].tensor == "block_tables");
  CHECK(found[0].verdict == Verdict::diverged);
  CHECK_FALSE(found[0].downstream);
  CHECK(found[0].elements == 5);
  CHECK(found[0].mismatches == 1);
  CHECK(found[0].meaning.request == "b");
  CHECK(found[0].meaning.page == 3);
  CHECK(found[0].meaning.part == "window");
  CHECK(found[0].note == "pool window, request b, item 0: page 2 in the reference, page 3 in the subject");
}

TEST_CASE("a page freed early is missing from the table and on the free list") {
  TableState wrong = tables();
  wrong.blocks = table({{0, 0, 0, 1}, {0, 1, 0, 2}, {3, 0, 0, 4}, {3, 1, 0, 4}}, 4);
  wrong.holders = table({{0, 1, 1}, {0, 2, 1}, {3, 4, 2}}, 3);
  wrong.free = table({{0, 3}, {0, 5}}, 2);
  const auto found = differing(wrong);
  REQUIRE(found.size() == 3);
  CHECK(found[0].note == "pool window, request a, item 1: page 3 in the reference, nothing in the subject");
  CHECK(found[1].tensor == "holders");
  CHECK(found[1].note == "pool window, page 3: holders 1 in the reference, nothing in the subject");
  CHECK(found[2].tensor == "free_pages");
  CHECK(found[2].note == "pool window, page 3: nothing in the reference, is there in the subject");
}

TEST_CASE("a reference count and a state base that differ are named") {
  TableState wrong = tables();
  wrong.holders.as<std::int32_t>()[3 * 3 + 2] = 1;
  wrong.bases.as<std::int32_t>()[3] = 2;
  const auto found = differing(wrong);
  REQUIRE(found.size() == 2);
  CHECK(found[0].note == "pool index, page 4: holders 2 in the reference, holders 1 in the subject");
  CHECK(found[1].tensor == "state_bases");
  CHECK(found[1].note == "request b: base 1 in the reference, base 2 in the subject");
}

TEST_CASE("tables that one side does not have are said to be missing, not different") {
  const SourceInfo info = test::synthetic_info({LayerKind::swa});
  StepObservation reference = test::synthetic_step(info);
  const StepObservation subject = reference;
  reference.tables = tables();
  Comparator comparator(info, info, Rules(RuleSet::bits));
  const StepComparison step = comparator.compare(reference, subject);
  CHECK(comparator.totals().passed());
  const auto skip = std::find_if(step.skips.begin(), step.skips.end(),
                                 [](const Skip& one) { return one.tensor == "tables"; });
  REQUIRE(skip != step.skips.end());
  CHECK(skip->reason == "no tables by the subject");
}
