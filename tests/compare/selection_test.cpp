#include "compare/selection.hpp"

#include <algorithm>

#include "compare/comparator.hpp"
#include "compare/synthetic.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

Tensor rows_of(std::vector<std::vector<std::int32_t>> rows) {
  Tensor tensor(DType::int32,
                {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  std::size_t at = 0;
  for (const auto& row : rows) {
    for (const std::int32_t value : row) tensor.as<std::int32_t>()[at++] = value;
  }
  return tensor;
}

Tensor scores_of(std::vector<std::vector<float>> rows) {
  Tensor tensor(DType::float32,
                {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  std::size_t at = 0;
  for (const auto& row : rows) {
    for (const float value : row) tensor.as<float>()[at++] = value;
  }
  return tensor;
}

Tensor doubles_of(std::vector<double> row) {
  Tensor tensor(DType::float64, {1, static_cast<std::int64_t>(row.size())});
  std::ranges::copy(row, tensor.as<double>().begin());
  return tensor;
}

Tensor one(std::int32_t value) {
  Tensor tensor(DType::int32, {1});
  tensor.as<std::int32_t>()[0] = value;
  return tensor;
}

struct Case {
  Tensor scores;
  Tensor visible;
  Comparison result;

  Verdict judge(const std::vector<std::int32_t>& reference, const std::vector<std::int32_t>& subject,
                const Tensor* subject_scores = nullptr, bool scores_pass = true) {
    result = {};
    SelectionScores context;
    context.reference = &scores;
    context.subject = subject_scores != nullptr ? subject_scores : &scores;
    context.visible = &visible;
    context.pass_rule = scores_pass;
    compare_selection(rows_of({reference}), rows_of({subject}), {true}, context, result);
    return result.verdict;
  }
};

}  // namespace

TEST_CASE("an exchange inside an exact tie at the cut is a tie swap, outside it diverges") {
  // Cut of the best three: 0.5, shared by entries 1, 3 and 4.
  Case c{scores_of({{0.9F, 0.5F, 0.7F, 0.5F, 0.5F, 0.1F}}), one(6), {}};
  REQUIRE(c.judge({0, 1, 2}, {0, 1, 2}) == Verdict::equal);
  REQUIRE(c.judge({0, 1, 2}, {0, 2, 3}) == Verdict::tie_swap);
  REQUIRE(c.result.first == std::vector<std::int64_t>{0, 1});
  REQUIRE(c.result.reference.value == 1);
  REQUIRE(c.result.reference.score == 0.5);
  REQUIRE(c.judge({0, 1, 2}, {0, 2, 4}) == Verdict::tie_swap);
  REQUIRE(c.judge({0, 1, 2}, {0, 2, 5}) == Verdict::diverged);    // worse than the cut
  REQUIRE(c.judge({0, 1, 2}, {1, 3, 4}) == Verdict::diverged);    // 0 and 2 are better than the tie
  REQUIRE(c.judge({0, 1, 2}, {0, 2, -1}) == Verdict::diverged);   // one too few
  REQUIRE(c.judge({0, 1, 2}, {0, 2, 2}) == Verdict::diverged);    // repeated
  REQUIRE(c.judge({0, 1, 2}, {0, 2, 6}) == Verdict::diverged);    // not visible
  REQUIRE(c.judge({0, 1, -1}, {0, 1, -2}) == Verdict::diverged);  // unused places are -1
  REQUIRE(c.judge({0, 1, 2}, {2, 0, 1}) == Verdict::value_equal);
  REQUIRE(c.result.mismatches == 3);
  REQUIRE(c.result.outside == 0);
}

TEST_CASE("zeros of both signs tie, NaN loses to -inf") {
  Case c{scores_of({{1.0F, 0.0F, -0.0F, -1.0F}}), one(4), {}};
  REQUIRE(c.judge({0, 1}, {0, 2}) == Verdict::tie_swap);
  c.scores = scores_of({{1.0F, -INFINITY, NAN, NAN}});
  REQUIRE(c.judge({0, 1}, {0, 2}) == Verdict::diverged);
  c.scores = scores_of({{1.0F, NAN, NAN, NAN}});
  REQUIRE(c.judge({0, 1}, {0, 2}) == Verdict::tie_swap);
}

TEST_CASE("each side may follow its own scores if these pass their rule") {
  Case c{scores_of({{0.9F, 0.5F, 0.4999F, 0.1F}}), one(4), {}};
  const Tensor moved = scores_of({{0.9F, 0.4999F, 0.5F, 0.1F}});
  REQUIRE(c.judge({0, 1}, {0, 2}, &moved, true) == Verdict::within_rule);
  REQUIRE(c.judge({0, 1}, {0, 2}, &moved, false) == Verdict::diverged);
  REQUIRE(c.judge({0, 1}, {0, 2}) == Verdict::diverged);  // same scores, worse entry
  REQUIRE(c.judge({0, 1}, {0, 3}, &moved, true) == Verdict::diverged);
}

TEST_CASE("without scores another set diverges") {
  Comparison result;
  compare_selection(rows_of({{0, 1}}), rows_of({{0, 2}}), {true}, {}, result);
  REQUIRE(result.verdict == Verdict::diverged);
  REQUIRE(result.note == "the scores are not at hand");
}

TEST_CASE("against the wide engine an exchange is judged by the bounds of the scores") {
  const Tensor scores = scores_of({{0.9F, 0.5F, 0.5F, 0.1F}});
  const Tensor visible = one(4);
  const Tensor exact = doubles_of({0.9, 0.5 + 3e-6, 0.5, 0.1});
  const auto judge = [&](double bound) {
    const Tensor bounds = doubles_of({bound, bound, bound, bound});
    SelectionScores context{&scores, &scores, &visible, false, &exact, &bounds};
    Comparison result;
    compare_selection(rows_of({{0, 1}}), rows_of({{0, 2}}), {true}, context, result);
    return result;
  };
  Comparison result = judge(2e-6);
  REQUIRE(result.verdict == Verdict::within_rule);
  REQUIRE(*result.worst_ratio > 0.7);  // 3e-6 of 4e-6 and a step of f32
  REQUIRE(*result.worst_ratio < 0.76);
  result = judge(1e-6);
  REQUIRE(result.verdict == Verdict::diverged);
  REQUIRE(*result.worst_ratio > 1);
}

TEST_CASE("lists follow the selection, and rows behind a legal exchange are not judged by value") {
  const SourceInfo info = test::synthetic_info({LayerKind::csa});
  StepObservation reference = test::synthetic_step(info);
  auto& left = reference.layers[0].tensors;
  // Token 3 sees three entries and selects two of them: a tie between 1 and 2.
  const std::int64_t k = info.config.geometry.index_topk;
  for (const TensorId id : {TensorId::selected, TensorId::compressed_logical, TensorId::compressed_slots}) {
    test::set<std::int32_t>(left[id], 3 * k + 2, -1);
  }
  for (const int entry : {0, 1, 2}) {
    test::set<float>(left[TensorId::scores], 3 * test::kScoreWidth + entry, entry == 0 ? 2.0F : 1.0F);
  }
  StepObservation subject = reference;
  auto& right = subject.layers[0].tensors;
  for (const TensorId id : {TensorId::selected, TensorId::compressed_logical, TensorId::compressed_slots}) {
    test::set<std::int32_t>(right[id], 3 * k + 1, 2);
  }
  for (std::int64_t i = 0; i < 512; ++i)
    test::set<std::uint16_t>(right[TensorId::attention_out], 3 * 2048 + i, 0x4500);

  const auto verdict = [&](const StepComparison& step, TensorId id) {
    return std::ranges::find(step.comparisons, std::optional(id), &Comparison::id)->verdict;
  };
  StepComparison step = Comparator(info, info, Rules(RuleSet::values)).compare(reference, subject);
  REQUIRE(verdict(step, TensorId::selected) == Verdict::tie_swap);
  REQUIRE(verdict(step, TensorId::compressed_logical) == Verdict::tie_swap);
  REQUIRE(verdict(step, TensorId::compressed_slots) == Verdict::tie_swap);
  REQUIRE(verdict(step, TensorId::attention_out) == Verdict::equal);
  REQUIRE_FALSE(step.failed());
  const auto out =
      std::ranges::find(step.comparisons, std::optional(TensorId::attention_out), &Comparison::id);
  REQUIRE(out->dont_care == 2 * 2048);
  REQUIRE(out->dont_care_mismatches == 512);

  step = Comparator(info, info, Rules(RuleSet::bits)).compare(reference, subject);
  const auto selected =
      std::ranges::find(step.comparisons, std::optional(TensorId::selected), &Comparison::id);
  REQUIRE(selected->verdict == Verdict::tie_swap);
  REQUIRE(selected->failed);
  REQUIRE(selected->inputs == Inputs::identical);
  REQUIRE_FALSE(selected->downstream);
  REQUIRE(verdict(step, TensorId::attention_out) == Verdict::diverged);

  // A list that does not follow.
  test::set<std::int32_t>(right[TensorId::compressed_slots], 0, 500);
  step = Comparator(info, info, Rules(RuleSet::values)).compare(reference, subject);
  REQUIRE(verdict(step, TensorId::compressed_slots) == Verdict::diverged);
}

}  // namespace dsv4::compare
