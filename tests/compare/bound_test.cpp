#include <algorithm>
#include <bit>
#include <cmath>

#include "compare/comparator.hpp"
#include "compare/synthetic.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

// A reference step, and a wide one whose values are the reference's, unrounded a little apart.
struct Wide {
  SourceInfo info = test::synthetic_info({LayerKind::swa});
  StepObservation reference = test::synthetic_step(info);
  StepObservation wide = reference;

  Tensor& tensor(bool of_wide, TensorId id) { return (of_wide ? wide : reference).layers[0].tensors.at(id); }

  void figures(TensorId id, double fill_bound) {
    LayerObservation& layer = wide.layers[0];
    const Tensor& like = layer.tensors.at(id);
    Tensor exact(DType::float64, like.shape());
    Tensor bound(DType::float64, like.shape());
    std::ranges::fill(bound.as<double>(), fill_bound);
    layer.unrounded[id] = exact;
    layer.bounds[id] = bound;
  }
  void exact(TensorId id, std::int64_t at, double value) {
    test::set<double>(wide.layers[0].unrounded.at(id), at, value);
  }
  Comparison compare(TensorId id, bool swapped = false) {
    const StepComparison step = swapped
                                    ? Comparator(info, info, Rules(RuleSet::values)).compare(wide, reference)
                                    : Comparator(info, info, Rules(RuleSet::values)).compare(reference, wide);
    return *std::ranges::find(step.comparisons, std::optional(id), &Comparison::id);
  }
};

}  // namespace

TEST_CASE("a bf16 result may lie beyond its rounding interval by the bound, not more") {
  Wide w;
  w.figures(TensorId::q, 0.25 * 0x1p-6);
  // Reference 3 + 2^-6, wide 3: 3.0 + half a step (2^-7) is the boundary.
  test::set<std::uint16_t>(w.tensor(false, TensorId::q), 5, 0x4041);
  test::set<std::uint16_t>(w.tensor(true, TensorId::q), 5, 0x4040);
  w.exact(TensorId::q, 5, 3 + 0x1p-7 - 0x1p-9);
  for (const bool swapped : {false, true}) {
    const Comparison c = w.compare(TensorId::q, swapped);
    REQUIRE(c.rule == "bound");
    REQUIRE(c.verdict == Verdict::within_rule);
    REQUIRE(c.worst_ratio == 0.5);
    REQUIRE(c.mismatches == 1);
    REQUIRE((swapped ? c.reference : c.subject).value == 3 + 0x1p-7 - 0x1p-9);
  }
  w.exact(TensorId::q, 5, 3 + 0x1p-7 - 0x1p-8);
  REQUIRE(w.compare(TensorId::q).worst_ratio == 1);
  REQUIRE(w.compare(TensorId::q).verdict == Verdict::within_rule);
  w.exact(TensorId::q, 5, 3.0);
  REQUIRE(w.compare(TensorId::q).worst_ratio == 2);
  REQUIRE(w.compare(TensorId::q).verdict == Verdict::diverged);
  REQUIRE(w.compare(TensorId::q).failed);
  // Inside the interval no bound is needed.
  w.exact(TensorId::q, 5, 3 + 0x1p-6);
  REQUIRE(w.compare(TensorId::q).worst_ratio == 0);
}

TEST_CASE("a code may move to its neighbour near the boundary, never two steps") {
  Wide w;
  const std::int64_t at = 2 * kNopeDim + 3;
  w.figures(TensorId::window_codes, 0.5);
  for (const bool side : {false, true})
    test::set<std::uint8_t>(w.tensor(side, TensorId::window_scales), 2 * 7, 120);
  test::set<std::uint8_t>(w.tensor(false, TensorId::window_codes), at, 0x59);  // 18
  test::set<std::uint8_t>(w.tensor(true, TensorId::window_codes), at, 0x58);   // 16; boundary 17
  w.exact(TensorId::window_codes, at, 16.75);
  Comparison c = w.compare(TensorId::window_codes);
  REQUIRE(c.verdict == Verdict::within_rule);
  REQUIRE(c.worst_ratio == 0.5);
  REQUIRE(c.worst_code_steps == 1);
  w.exact(TensorId::window_codes, at, 16.25);
  c = w.compare(TensorId::window_codes);
  REQUIRE(c.worst_ratio == 1.5);
  REQUIRE(c.verdict == Verdict::diverged);

  // A wide bound does not excuse two steps.
  w.figures(TensorId::window_codes, 100);
  w.exact(TensorId::window_codes, at, 16.9);
  test::set<std::uint8_t>(w.tensor(false, TensorId::window_codes), at, 0x5A);
  c = w.compare(TensorId::window_codes);
  REQUIRE(c.worst_code_steps == 2);
  REQUIRE(c.verdict == Verdict::diverged);
}

TEST_CASE("codes under another scale are brought to the wide engine's scale") {
  Wide w;
  const std::int64_t at = 2 * kNopeDim + 3;
  for (const bool side : {false, true}) {
    for (std::int64_t dim = 0; dim < 64; ++dim) {
      test::set<std::uint8_t>(w.tensor(side, TensorId::window_codes), 2 * kNopeDim + dim, 0x00);
    }
  }
  w.figures(TensorId::window_codes, 0.125);
  // The reference took twice the scale: 9 there is 18 here; the next codes of the reference are 8 and 10.
  test::set<std::uint8_t>(w.tensor(false, TensorId::window_scales), 2 * 7, 121);
  test::set<std::uint8_t>(w.tensor(true, TensorId::window_scales), 2 * 7, 120);
  test::set<std::uint8_t>(w.tensor(false, TensorId::window_codes), at, 0x51);  // 9
  test::set<std::uint8_t>(w.tensor(true, TensorId::window_codes), at, 0x59);   // 18
  w.exact(TensorId::window_codes, at, 18.5);
  Comparison c = w.compare(TensorId::window_codes);
  REQUIRE(c.verdict == Verdict::value_equal);
  w.exact(TensorId::window_codes, at, 19.0 + 0.25);  // boundary of 9 is 9.5: 19
  REQUIRE(w.compare(TensorId::window_codes).worst_ratio == 2);
}

TEST_CASE("a scale is a power of two rounded up: it may differ where the quotient lies at one") {
  Wide w;
  w.figures(TensorId::window_scales, 0x1p-20);
  test::set<std::uint8_t>(w.tensor(false, TensorId::window_scales), 3, 128);  // 2: quotients in (1, 2]
  test::set<std::uint8_t>(w.tensor(true, TensorId::window_scales), 3, 127);   // 1
  w.exact(TensorId::window_scales, 3, 1 - 0x1p-21);
  REQUIRE(w.compare(TensorId::window_scales).worst_ratio == 0.5);
  REQUIRE(w.compare(TensorId::window_scales).verdict == Verdict::within_rule);
  w.exact(TensorId::window_scales, 3, 0.75);
  REQUIRE(w.compare(TensorId::window_scales).verdict == Verdict::diverged);
}

TEST_CASE("a bound of zero accepts nothing beyond the interval; NaN must meet NaN") {
  Wide w;
  w.figures(TensorId::attention_lse, 0);
  test::flip(w.tensor(false, TensorId::attention_lse), 4);
  w.exact(TensorId::attention_lse, 4, 1000);
  Comparison c = w.compare(TensorId::attention_lse);
  REQUIRE(std::isinf(*c.worst_ratio));
  REQUIRE(c.verdict == Verdict::diverged);
  w.figures(TensorId::attention_lse, 1e300);
  test::set<float>(w.tensor(false, TensorId::attention_lse), 4, NAN);
  w.exact(TensorId::attention_lse, 4, 1);
  REQUIRE(w.compare(TensorId::attention_lse).verdict == Verdict::diverged);
}

TEST_CASE("on other inputs a bound says nothing: the tensor's rule decides") {
  Wide w;
  w.figures(TensorId::q, 0);
  test::set<std::uint16_t>(w.tensor(false, TensorId::q), 5, 0x4041);
  test::set<std::uint16_t>(w.tensor(true, TensorId::q), 5, 0x4040);
  w.exact(TensorId::q, 5, 3);
  REQUIRE(w.compare(TensorId::q).verdict == Verdict::diverged);
  test::flip(w.tensor(false, TensorId::q_latent), 0);
  const Comparison c = w.compare(TensorId::q);
  REQUIRE(c.rule == "rms:0.03+rel:0.03");
  REQUIRE(c.verdict == Verdict::within_rule);
  REQUIRE_FALSE(c.worst_ratio.has_value());
}

TEST_CASE("totals carry the worst ratio of the run") {
  Wide w;
  w.figures(TensorId::q, 0x1p-8);
  test::set<std::uint16_t>(w.tensor(false, TensorId::q), 5, 0x4041);
  test::set<std::uint16_t>(w.tensor(true, TensorId::q), 5, 0x4040);
  w.exact(TensorId::q, 5, 3 + 0x1p-7 - 0x1p-9);
  Comparator comparator(w.info, w.info, Rules(RuleSet::values));
  comparator.compare(w.reference, w.wide);
  REQUIRE(comparator.totals().worst_ratio == 0.5);
}

}  // namespace dsv4::compare
