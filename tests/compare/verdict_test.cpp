#include <algorithm>
#include <bit>
#include <cmath>

#include "compare/comparator.hpp"
#include "compare/order_bound.hpp"
#include "compare/synthetic.hpp"
#include "model/layout.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

using test::set;
using test::synthetic_info;
using test::synthetic_step;

class Pair {
 public:
  explicit Pair(LayerKind kind = LayerKind::csa)
      : info(synthetic_info({kind})), reference(synthetic_step(info)), subject(reference) {}

  Tensor& left(TensorId id) { return reference.layers[0].tensors.at(id); }
  Tensor& right(TensorId id) { return subject.layers[0].tensors.at(id); }

  Comparison compare(RuleSet set_name, TensorId id, const std::string& override_text = "") const {
    Rules rules(set_name);
    if (!override_text.empty()) rules.add_override(override_text);
    const StepComparison step = Comparator(info, info, rules).compare(reference, subject);
    return *std::ranges::find(step.comparisons, std::optional(id), &Comparison::id);
  }

  SourceInfo info;
  StepObservation reference;
  StepObservation subject;
};

std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

}  // namespace

TEST_CASE("value_equal: scale doubled, codes halved") {
  Pair pair;
  // Block 1 of token 2: 448 values at even code exponents so that halving is exact.
  const std::int64_t row = 2;
  for (std::int64_t dim = 64; dim < 128; ++dim) {
    const std::int64_t at = row * kNopeDim + dim;
    const auto code = static_cast<std::uint8_t>(0x38 + dim % 8);
    set<std::uint8_t>(pair.left(TensorId::window_codes), at, code);
    set<std::uint8_t>(pair.right(TensorId::window_codes), at, static_cast<std::uint8_t>(code - 8));
    set<std::uint8_t>(pair.left(TensorId::window_page_bytes), row * 584 + dim, code);
    set<std::uint8_t>(pair.right(TensorId::window_page_bytes), row * 584 + dim,
                      static_cast<std::uint8_t>(code - 8));
  }
  set<std::uint8_t>(pair.left(TensorId::window_scales), row * 7 + 1, 120);
  set<std::uint8_t>(pair.right(TensorId::window_scales), row * 7 + 1, 121);
  set<std::uint8_t>(pair.left(TensorId::window_page_bytes), row * 584 + 577, 120);
  set<std::uint8_t>(pair.right(TensorId::window_page_bytes), row * 584 + 577, 121);
  for (const TensorId id : {TensorId::window_codes, TensorId::window_scales, TensorId::window_page_bytes}) {
    INFO(path(id));
    Comparison c = pair.compare(RuleSet::values, id);
    REQUIRE(c.verdict == Verdict::value_equal);
    REQUIRE_FALSE(c.failed);
    REQUIRE(c.outside == 0);
    REQUIRE(c.mismatches == (id == TensorId::window_codes ? 64 : id == TensorId::window_scales ? 1 : 65));
    c = pair.compare(RuleSet::bits, id);
    REQUIRE(c.verdict == Verdict::value_equal);
    REQUIRE(c.failed);
  }
  // One code that was not halved is off by a factor of two.
  set<std::uint8_t>(pair.right(TensorId::window_codes), row * kNopeDim + 70, 0x38 + 70 % 8);
  Comparison c = pair.compare(RuleSet::values, TensorId::window_codes);
  REQUIRE(c.verdict == Verdict::value_equal);  // its bits are equal, the others have equal values ...
  c = pair.compare(RuleSet::values, TensorId::window_scales);
  REQUIRE(c.verdict == Verdict::diverged);  // ... but the block's scale turns equal bits into another value
  REQUIRE(c.failed);
}

TEST_CASE("a scale that is off by one step with the same codes diverges") {
  for (const TensorId id : {TensorId::window_scales, TensorId::compress_scales, TensorId::indexer_scales}) {
    Pair pair;
    Tensor& scales = pair.right(id);
    if (scales.dtype() == DType::float32) {
      set<float>(scales, 1, 1.0F);
    } else {
      const std::uint8_t byte = scales.as<std::uint8_t>()[1];
      set<std::uint8_t>(scales, 1, static_cast<std::uint8_t>(byte + 1));
    }
    const Comparison c = pair.compare(RuleSet::values, id);
    INFO(path(id));
    REQUIRE(c.verdict == Verdict::diverged);
    REQUIRE(c.failed);
  }
}

TEST_CASE("codes may move by one step under values, and by what their activation may move") {
  Pair pair;
  for (const bool left : {true, false}) {  // equal values 2 * 2^-7 everywhere
    Tensor& codes = left ? pair.left(TensorId::window_codes) : pair.right(TensorId::window_codes);
    Tensor& scales = left ? pair.left(TensorId::window_scales) : pair.right(TensorId::window_scales);
    std::ranges::fill(codes.as<std::uint8_t>(), std::uint8_t{0x40});
    std::ranges::fill(scales.as<std::uint8_t>(), std::uint8_t{120});
  }
  const std::int64_t at = 3 * kNopeDim + 17;
  set<std::uint8_t>(pair.left(TensorId::window_codes), at, 0x40);
  set<std::uint8_t>(pair.right(TensorId::window_codes), at, 0x41);
  set<std::uint16_t>(pair.right(TensorId::window_kv), 0, bf16(100));  // inputs of the quantiser differ
  Comparison c = pair.compare(RuleSet::values, TensorId::window_codes);
  REQUIRE(c.verdict == Verdict::within_rule);
  REQUIRE(c.worst_ulp == 1);
  REQUIRE_FALSE(c.failed);
  set<std::uint8_t>(pair.right(TensorId::window_codes), at, 0x42);
  c = pair.compare(RuleSet::values, TensorId::window_codes);
  REQUIRE(c.verdict == Verdict::diverged);
  REQUIRE(c.worst_ulp == 2);
  c = pair.compare(RuleSet::values, TensorId::window_codes, "kv.window/codes=ulp:2");
  REQUIRE(c.verdict == Verdict::within_rule);
  // Near zero steps are small: 0 against 2^-5 is sixteen of them, and less than 0.03 of the RMS.
  set<std::uint8_t>(pair.left(TensorId::window_codes), at, 0x00);
  set<std::uint8_t>(pair.right(TensorId::window_codes), at, 0x10);
  c = pair.compare(RuleSet::values, TensorId::window_codes);
  REQUIRE(c.worst_ulp == 16);
  REQUIRE(c.verdict == Verdict::within_rule);
  c = pair.compare(RuleSet::values, TensorId::window_codes, "kv.window/codes=ulp:1");
  REQUIRE(c.verdict == Verdict::diverged);
}

TEST_CASE("ordering_only: same inputs, within the bound of another summation order") {
  // q_latent sums 256 products: 16 * 2^-24 * 16 of the RMS (about 3.1) and one step of bf16.
  REQUIRE(ordering_limit_in_rms(256) == 0x1p-16);
  Pair pair;
  const std::int64_t at = 128 + 5;
  set<std::uint16_t>(pair.left(TensorId::q_latent), at, 0x4050);   // 3.25
  set<std::uint16_t>(pair.right(TensorId::q_latent), at, 0x4051);  // one step
  Comparison c = pair.compare(RuleSet::bits, TensorId::q_latent);
  REQUIRE(c.verdict == Verdict::ordering_only);
  REQUIRE(c.failed);
  c = pair.compare(RuleSet::values, TensorId::q_latent);
  REQUIRE(c.verdict == Verdict::ordering_only);
  REQUIRE_FALSE(c.failed);

  set<std::uint16_t>(pair.right(TensorId::q_latent), at, 0x4052);  // two steps
  c = pair.compare(RuleSet::bits, TensorId::q_latent);
  REQUIRE(c.verdict == Verdict::diverged);
  c = pair.compare(RuleSet::values, TensorId::q_latent);
  REQUIRE(c.verdict == Verdict::within_rule);

  // The same step with other inputs is not another order of the same sum.
  set<std::uint16_t>(pair.right(TensorId::q_latent), at, 0x4051);
  test::flip(pair.right(TensorId::hidden), 0);
  c = pair.compare(RuleSet::bits, TensorId::q_latent);
  REQUIRE(c.verdict == Verdict::diverged);
  REQUIRE(c.downstream);

  // f32 results: the same limit in units of the RMS.
  Pair second;
  const float base = second.left(TensorId::compress_kv).as<float>()[9];
  set<float>(second.right(TensorId::compress_kv), 9, base + 0x1p-16F);
  REQUIRE(second.compare(RuleSet::bits, TensorId::compress_kv).verdict == Verdict::ordering_only);
  set<float>(second.right(TensorId::compress_kv), 9, base + 0x1p-13F);
  REQUIRE(second.compare(RuleSet::bits, TensorId::compress_kv).verdict == Verdict::diverged);
}

TEST_CASE("state rows are copies: no order of summation explains a difference") {
  Pair pair;
  const float base = pair.left(TensorId::compress_state_kv).as<float>()[4];
  set<float>(pair.right(TensorId::compress_state_kv), 4, std::nextafter(base, 100.0F));
  REQUIRE(pair.compare(RuleSet::bits, TensorId::compress_state_kv).verdict == Verdict::diverged);
  REQUIRE(pair.compare(RuleSet::values, TensorId::compress_state_kv).verdict == Verdict::within_rule);
}

TEST_CASE("tolerances combine absolute, RMS and relative parts") {
  Pair pair;
  Tensor& left = pair.left(TensorId::attention_lse);
  for (std::int64_t i = 0; i < left.elements(); ++i) {
    set<float>(left, i, 4.0F);
    set<float>(pair.right(TensorId::attention_lse), i, 4.0F);
  }
  test::flip(pair.right(TensorId::q), 0);  // other inputs, so that no ordering verdict is possible
  const auto verdict = [&](float value, const std::string& rule) {
    set<float>(pair.right(TensorId::attention_lse), 2, value);
    return pair.compare(RuleSet::values, TensorId::attention_lse, "attention.core/lse=" + rule).verdict;
  };
  REQUIRE(verdict(4.5F, "abs:0.5") == Verdict::within_rule);
  REQUIRE(verdict(4.5F, "abs:0.49") == Verdict::diverged);
  REQUIRE(verdict(4.5F, "rms:0.125") == Verdict::within_rule);
  REQUIRE(verdict(4.5F, "rms:0.124") == Verdict::diverged);
  REQUIRE(verdict(4.5F, "rel:0.125") == Verdict::within_rule);
  REQUIRE(verdict(4.5F, "rel:0.124") == Verdict::diverged);
  REQUIRE(verdict(4.5F, "abs:0.25+rel:0.0625") == Verdict::within_rule);
  REQUIRE(verdict(4.5F, "bits") == Verdict::diverged);
  REQUIRE(verdict(INFINITY, "abs:1000") == Verdict::diverged);
  REQUIRE(verdict(NAN, "abs:1000+rel:1000") == Verdict::diverged);
}

TEST_CASE("an override decides over its tensor in the set bits") {
  Pair pair;
  test::flip(pair.right(TensorId::q_latent), 7);
  REQUIRE(pair.compare(RuleSet::bits, TensorId::q_latent).failed);
  REQUIRE_FALSE(pair.compare(RuleSet::bits, TensorId::q_latent, "q.down/q_latent=ulp:1").failed);
  REQUIRE(pair.compare(RuleSet::values, TensorId::q_latent, "q.down/.*=bits").failed);
}

TEST_CASE("NaN equals NaN whatever its payload, and nothing else") {
  Pair pair;
  set<std::uint32_t>(pair.left(TensorId::attention_lse), 3, 0x7FC00000);
  set<std::uint32_t>(pair.right(TensorId::attention_lse), 3, 0xFFABCDEF);
  set<std::uint16_t>(pair.left(TensorId::attention_out), 100, 0x7FC0);
  set<std::uint16_t>(pair.right(TensorId::attention_out), 100, 0xFFFF);
  for (const RuleSet rules : {RuleSet::bits, RuleSet::values}) {
    for (const TensorId id : {TensorId::attention_lse, TensorId::attention_out}) {
      const Comparison c = pair.compare(rules, id);
      REQUIRE(c.verdict == Verdict::equal);
      REQUIRE(c.reference_nonfinite.count == 1);
      REQUIRE(c.subject_nonfinite.count == 1);
    }
  }
  REQUIRE(pair.compare(RuleSet::bits, TensorId::attention_lse).reference_nonfinite.first ==
          std::vector<std::int64_t>{0, 3});
  set<std::uint32_t>(pair.right(TensorId::attention_lse), 3, 0x3F800000);
  const Comparison c = pair.compare(RuleSet::values, TensorId::attention_lse);
  REQUIRE(c.verdict == Verdict::diverged);
  REQUIRE(c.subject_nonfinite.count == 0);
  REQUIRE(c.worst_ulp == INT64_MAX);
}

TEST_CASE("the first non-finite element is named on each side") {
  Pair pair;
  set<std::uint16_t>(pair.right(TensorId::attention_out), (4 * 4 + 2) * 512 + 9, 0x7F80);
  set<std::uint16_t>(pair.right(TensorId::attention_out), (5 * 4 + 2) * 512 + 9, 0xFF80);
  const Comparison c = pair.compare(RuleSet::values, TensorId::attention_out);
  REQUIRE(c.reference_nonfinite.count == 0);
  REQUIRE(c.subject_nonfinite.count == 2);
  REQUIRE(c.subject_nonfinite.first == std::vector<std::int64_t>{4, 2, 9});
  REQUIRE(c.subject_nonfinite.meaning.request == "b");
  REQUIRE(c.subject_nonfinite.meaning.head == 2);
}

TEST_CASE("padding rows, scores beyond visible and the spare byte are don't-care, and counted") {
  Pair pair;
  for (const TensorId id : {TensorId::q, TensorId::selected, TensorId::visible, TensorId::window_slots}) {
    Tensor& tensor = pair.right(id);
    test::flip(tensor, test::kPaddingRow * tensor.row_elements());
    const Comparison c = pair.compare(RuleSet::bits, id);
    INFO(path(id));
    REQUIRE(c.verdict == Verdict::equal);
    REQUIRE(c.dont_care == tensor.row_elements());
    REQUIRE(c.dont_care_mismatches == 1);
    REQUIRE(c.elements == 6 * tensor.row_elements());
    REQUIRE_FALSE(c.dont_care_reason.empty());
  }
  Tensor& scores = pair.right(TensorId::scores);
  test::flip(scores, 3 * test::kScoreWidth + test::kVisible[3]);
  Comparison c = pair.compare(RuleSet::bits, TensorId::scores);
  REQUIRE(c.verdict == Verdict::equal);
  REQUIRE(c.elements == 2 + 2 + 2 + 3 + 2 + 3);
  REQUIRE(c.dont_care == 7 * test::kScoreWidth - c.elements);
  REQUIRE(c.dont_care_mismatches == 1);
  REQUIRE(c.dont_care_reason == "padding rows, scores at or beyond visible");
  test::flip(scores, 3 * test::kScoreWidth + test::kVisible[3] - 1);
  c = pair.compare(RuleSet::bits, TensorId::scores);
  REQUIRE(c.failed);
  REQUIRE(c.mismatches == 1);

  Tensor& bytes = pair.right(TensorId::compress_page_bytes);
  test::flip(bytes, 583);
  c = pair.compare(RuleSet::bits, TensorId::compress_page_bytes);
  REQUIRE(c.verdict == Verdict::equal);
  REQUIRE(c.dont_care == 2);
  REQUIRE(c.dont_care_mismatches == 1);
  test::flip(bytes, 582);
  REQUIRE(pair.compare(RuleSet::bits, TensorId::compress_page_bytes).failed);
}

TEST_CASE("axes that all mismatches share are reported") {
  Pair pair;
  for (const std::int64_t token : {0, 2, 5}) {
    for (const std::int64_t dim : {3, 400}) test::flip(pair.right(TensorId::q), (token * 4 + 3) * 512 + dim);
  }
  const Comparison c = pair.compare(RuleSet::bits, TensorId::q);
  REQUIRE(c.mismatches == 6);
  REQUIRE(c.shared == std::vector<std::pair<std::string, std::int64_t>>{{"head", 3}});
  REQUIRE(c.requests_touched == 2);
  REQUIRE(c.requests_total == 2);
}

TEST_CASE("FP4 rows: two codes a byte, scales of 32") {
  Pair pair;
  auto& left = pair.reference.layers[0].tensors;
  auto& right = pair.subject.layers[0].tensors;
  left[TensorId::indexer_page_bytes] = Tensor(DType::uint8, {2, layout::kIndexFp4RowBytes});
  Tensor& row = left[TensorId::indexer_page_bytes];
  for (std::int64_t i = 0; i < 64; ++i) set<std::uint8_t>(row, i, 0x42);  // 1, 2
  for (std::int64_t i = 64; i < 68; ++i) set<std::uint8_t>(row, i, 126);
  right[TensorId::indexer_page_bytes] = row;
  Tensor& other = right[TensorId::indexer_page_bytes];
  for (std::int64_t i = 16; i < 32; ++i) set<std::uint8_t>(other, i, 0x64);  // 2, 4: block 1, scale halved
  set<std::uint8_t>(other, 65, 125);
  REQUIRE(pair.compare(RuleSet::values, TensorId::indexer_page_bytes).verdict == Verdict::value_equal);
  set<std::uint8_t>(other, 17, 0x60);  // 0 where 0.5 was: two steps of the reference
  const Comparison c = pair.compare(RuleSet::values, TensorId::indexer_page_bytes);
  REQUIRE(c.verdict == Verdict::diverged);
  REQUIRE(c.meaning.part == "codes");
}

TEST_CASE("hopper-exact: bits of what a kernel model computed, from the same inputs") {
  using enum TensorId;
  const std::vector<TensorId> modelled{compress_pooled};
  Pair pair;
  const auto compare = [&](TensorId id, const std::string& override_text = "") {
    Rules rules(RuleSet::hopper_exact, modelled);
    if (!override_text.empty()) rules.add_override(override_text);
    const StepComparison step = Comparator(pair.info, pair.info, rules).compare(pair.reference, pair.subject);
    return *std::ranges::find(step.comparisons, std::optional(id), &Comparison::id);
  };
  REQUIRE_FALSE(compare(compress_pooled).failed);
  const std::int64_t element = test::judged_element(compress_pooled, pair.right(compress_pooled));
  test::flip(pair.right(compress_pooled), element);
  Comparison c = compare(compress_pooled);
  REQUIRE(c.inputs == Inputs::identical);
  REQUIRE(c.failed);
  REQUIRE(c.outside == 1);
  REQUIRE(c.rule == "bits");
  REQUIRE(pair.compare(RuleSet::bits, compress_pooled).failed);
  REQUIRE_FALSE(pair.compare(RuleSet::values, compress_pooled).failed);
  // Without a model, and under an override, the rule of the values holds.
  test::flip(pair.right(indexer_pooled), test::judged_element(indexer_pooled, pair.right(indexer_pooled)));
  c = compare(indexer_pooled);
  REQUIRE_FALSE(c.failed);
  REQUIRE(c.mismatches == 1);
  REQUIRE(c.rule == to_string(Rules(RuleSet::values).rule(indexer_pooled)));
  REQUIRE_FALSE(compare(compress_pooled, "compress.pool/pooled=ulp:1").failed);
  // From an input that differs within its rule the model cannot have the kernel's bits.
  test::flip(pair.right(compress_kv), test::judged_element(compress_kv, pair.right(compress_kv)));
  c = compare(compress_pooled);
  REQUIRE(c.inputs == Inputs::within_rule);
  REQUIRE_FALSE(c.failed);
  REQUIRE(c.mismatches == 1);
  // Index sets and lengths differ in no rule set.
  set<std::int32_t>(pair.right(visible), 0, 1);
  REQUIRE(compare(visible).failed);
}

TEST_CASE("hopper-exact: float64 values and bounds on the other side judge") {
  using enum TensorId;
  const std::vector<TensorId> modelled{compress_pooled};
  Pair pair;
  Tensor& value = pair.right(compress_pooled);
  Tensor unrounded(DType::float64, value.shape());
  Tensor bounds(DType::float64, value.shape());
  for (std::int64_t i = 0; i < value.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    unrounded.as<double>()[at] = static_cast<double>(value.as<float>()[at]);
    bounds.as<double>()[at] = 1e-3;
  }
  test::flip(value, test::judged_element(compress_pooled, value));
  pair.subject.layers[0].unrounded.emplace(compress_pooled, unrounded);
  pair.subject.layers[0].bounds.emplace(compress_pooled, bounds);
  const Rules rules(RuleSet::hopper_exact, modelled);
  const StepComparison step = Comparator(pair.info, pair.info, rules).compare(pair.reference, pair.subject);
  const Comparison c = *std::ranges::find(step.comparisons, std::optional(compress_pooled), &Comparison::id);
  REQUIRE(c.rule == "bound");
  REQUIRE(c.mismatches == 1);
  REQUIRE_FALSE(c.failed);
  // A kernel that adds or rounds otherwise than the profile is not held to the profile's bound.
  for (double& exact : pair.subject.layers[0].unrounded.at(compress_pooled).as<double>()) exact += 0.01;
  Rules unbounded(RuleSet::values);
  const auto judged = [&](const Rules& by) {
    const StepComparison one = Comparator(pair.info, pair.info, by).compare(pair.reference, pair.subject);
    return *std::ranges::find(one.comparisons, std::optional(compress_pooled), &Comparison::id);
  };
  REQUIRE(judged(unbounded).failed);
  unbounded.judge_without_bound(compress_pooled);
  REQUIRE_FALSE(judged(unbounded).failed);
  REQUIRE(judged(unbounded).rule == to_string(Rules(RuleSet::values).rule(compress_pooled)));
}

TEST_CASE("hopper-exact behind a product without a model: what the kernel reads has to be identical") {
  using enum TensorId;
  const std::vector<TensorId> modelled{q};
  Pair pair;
  Rules rules(RuleSet::hopper_exact, modelled);
  rules.require_given(q, q_raw);
  CompareOptions options;
  const auto failed = [&] {
    const StepComparison step =
        Comparator(pair.info, pair.info, rules, options).compare(pair.reference, pair.subject);
    return std::ranges::find(step.comparisons, std::optional(q), &Comparison::id)->failed;
  };
  test::flip(pair.right(q), test::judged_element(q, pair.right(q)));
  REQUIRE(failed());
  // Another product, within its rule: no bits of the kernel's are to be expected.
  test::flip(pair.right(q_raw), test::judged_element(q_raw, pair.right(q_raw)));
  REQUIRE_FALSE(failed());
  // Nor where nothing is known of it, unless the subject says that it took the reference's.
  pair.subject.layers[0].tensors.erase(q_raw);
  REQUIRE_FALSE(failed());
  options.taken_from_reference = true;
  REQUIRE(failed());
}

}  // namespace dsv4::compare
