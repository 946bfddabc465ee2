#include "compare/comparator.hpp"

#include <algorithm>

#include "compare/meaning.hpp"
#include "compare/synthetic.hpp"
#include "model/error.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

using test::synthetic_info;
using test::synthetic_step;

StepComparison compare_bits(const SourceInfo& info, const StepObservation& a, const StepObservation& b) {
  return Comparator(info, info, Rules(RuleSet::bits)).compare(a, b);
}

std::vector<const Comparison*> differing(const StepComparison& step) {
  std::vector<const Comparison*> result;
  for (const Comparison& c : step.comparisons) {
    if (c.verdict != Verdict::equal) result.push_back(&c);
  }
  return result;
}

}  // namespace

TEST_CASE("equal steps are equal in every tensor, digest and snapshot") {
  for (const LayerKind kind : {LayerKind::swa, LayerKind::csa, LayerKind::hca}) {
    const SourceInfo info = synthetic_info({kind});
    const StepObservation step = synthetic_step(info);
    Comparator comparator(info, info, Rules(RuleSet::bits));
    const StepComparison result = comparator.compare(step, step);
    REQUIRE(differing(result).empty());
    REQUIRE(result.skips.empty());
    REQUIRE_FALSE(result.failed());
    const Totals& totals = comparator.totals();
    REQUIRE(totals.passed());
    REQUIRE_FALSE(totals.nothing_compared());
    // Five batch tables; the tensors; the digests; the snapshots.
    const LayerObservation& layer = step.layers[0];
    REQUIRE(static_cast<std::size_t>(totals.compared) ==
            5 + layer.tensors.size() + layer.state_digests.size() + layer.state_tensors.size());
  }
}

TEST_CASE("a one-bit change in any tensor is found at its stage and coordinate") {
  for (const LayerKind kind : {LayerKind::swa, LayerKind::csa, LayerKind::hca}) {
    const SourceInfo info = synthetic_info({LayerKind::swa, kind});
    const StepObservation reference = synthetic_step(info);
    for (const auto& [id, tensor] : reference.layers[1].tensors) {
      INFO(path(id));
      StepObservation subject = reference;
      const std::int64_t element = test::judged_element(id, tensor);
      test::flip(subject.layers[1].tensors.at(id), element);
      const StepComparison result = compare_bits(info, reference, subject);
      const std::vector<const Comparison*> found = differing(result);
      REQUIRE(found.size() == 1);
      const Comparison& c = *found[0];
      REQUIRE(c.failed);
      REQUIRE_FALSE(c.downstream);
      REQUIRE(c.id == id);
      REQUIRE(c.layer == 1);
      REQUIRE(c.stage == name(dsv4::info(id).stage));
      REQUIRE(c.tensor == dsv4::info(id).name);
      REQUIRE(c.first == coordinate(tensor.shape(), element));
      REQUIRE(c.mismatches == 1);
      REQUIRE(c.outside >= 1);
      REQUIRE(c.inputs == Inputs::identical);
      REQUIRE(c.reference.hex != c.subject.hex);
      // One mismatch: every axis longer than one shares its index.
      const auto long_axes =
          std::ranges::count_if(tensor.shape(), [](std::int64_t size) { return size > 1; });
      if (tensor_class(id) != TensorClass::selection) {
        REQUIRE(static_cast<std::int64_t>(c.shared.size()) == long_axes);
      }
      // The planted rows belong to request b: token row 4 (position 10), state row 2 (position 11), entry 2.
      const std::string_view dims = dsv4::info(id).dims;
      if (dims.starts_with("token")) {
        REQUIRE(c.meaning.request == "b");
        REQUIRE(c.meaning.position == 10);
        REQUIRE(c.meaning.position_mod_4 == 2);
        REQUIRE(c.meaning.position_mod_128 == 10);
        REQUIRE(c.meaning.position_mod_page == 10);
      } else if (dims.starts_with("row")) {
        REQUIRE(c.meaning.request == "b");
        REQUIRE(c.meaning.position == 11);
      } else {
        REQUIRE(c.meaning.request == "b");
        REQUIRE(c.meaning.entry == 2);
        REQUIRE(c.meaning.entry_first == (kind == LayerKind::csa ? 8 : 256));
        REQUIRE(c.meaning.entry_last == (kind == LayerKind::csa ? 11 : 383));
      }
    }
  }
}

TEST_CASE("meaning names head, dim, block, page, offset and packed part") {
  const SourceInfo info = synthetic_info({LayerKind::csa});
  const StepObservation reference = synthetic_step(info);
  const auto meaning = [&](TensorId id, std::vector<std::int64_t> where) {
    const Tensor& tensor = reference.layers[0].tensors.at(id);
    std::int64_t element = 0;
    for (std::size_t axis = 0; axis < where.size(); ++axis)
      element = element * tensor.dim(axis) + where[axis];
    return MeaningOf(info, reference, 0).element(id, tensor, element);
  };
  Meaning m = meaning(TensorId::q, {1, 3, 200});
  REQUIRE(m.request == "a");
  REQUIRE(m.position == 9);
  REQUIRE(m.head == 3);
  REQUIRE(m.dim == 200);
  REQUIRE_FALSE(m.page.has_value());
  m = meaning(TensorId::window_codes, {4, 447});
  REQUIRE(m.block == 6);
  REQUIRE(m.page == 2);
  REQUIRE(m.offset == 10);
  m = meaning(TensorId::hidden_codes, {0, 130});
  REQUIRE(m.block == 1);
  m = meaning(TensorId::window_page_bytes, {0, 449});
  REQUIRE(m.part == "rope");
  REQUIRE(m.dim == 448);
  m = meaning(TensorId::window_page_bytes, {0, 580});
  REQUIRE(m.part == "scales");
  REQUIRE(m.block == 4);
  m = meaning(TensorId::indexer_page_bytes, {1, 130});
  REQUIRE(m.part == "scales");
  REQUIRE(m.page == 2);
  REQUIRE(m.offset == 2);
  m = meaning(TensorId::scores, {3, 2});
  REQUIRE(m.entry == 2);
  REQUIRE(m.entry_first == 8);
  m = meaning(TensorId::window_slots, {3, 17});
  REQUIRE(m.rank == 17);
}

TEST_CASE("a change in a batch table, digest or snapshot is found") {
  const SourceInfo info = synthetic_info({LayerKind::csa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  test::flip(subject.batch.position, 5);
  std::vector<const Comparison*> found;
  StepComparison result = compare_bits(info, reference, subject);
  found = differing(result);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0]->stage == "batch");
  REQUIRE(found[0]->tensor == "position");
  REQUIRE(found[0]->first == std::vector<std::int64_t>{5});
  REQUIRE(found[0]->meaning.request == "b");

  subject = reference;
  subject.layers[0].state_digests[Cache::index_state][7] = 'f';
  result = compare_bits(info, reference, subject);
  found = differing(result);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0]->stage == "state");
  REQUIRE(found[0]->tensor == "index_state");
  REQUIRE(found[0]->failed);
  REQUIRE_FALSE(found[0]->downstream);
  REQUIRE(found[0]->subject_digest[7] == 'f');

  // Page 2, row 5, a code; then only don't-care bytes: a spare scale byte and one behind the last row.
  const std::int64_t pitch = reference.layers[0].state_tensors.at("swa_pages").dim(1);
  subject = reference;
  test::flip(subject.layers[0].state_tensors.at("swa_pages"), 2 * pitch + 5 * 576 + 3);
  result = compare_bits(info, reference, subject);
  found = differing(result);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0]->tensor == "swa_pages");
  REQUIRE(found[0]->meaning.page == 2);
  REQUIRE(found[0]->meaning.offset == 5);
  REQUIRE(found[0]->meaning.part == "codes");
  subject = reference;
  test::flip(subject.layers[0].state_tensors.at("swa_pages"), 2 * pitch + 64 * 576 + 5 * 8 + 7);
  test::flip(subject.layers[0].state_tensors.at("swa_pages"), 3 * pitch - 1);
  result = compare_bits(info, reference, subject);
  REQUIRE(differing(result).empty());
  const auto pages = std::ranges::find(result.comparisons, "swa_pages", &Comparison::tensor);
  REQUIRE(pages->dont_care == 3 * (64 + pitch - 64 * 584));
  REQUIRE(pages->dont_care_mismatches == 2);
}

TEST_CASE("a later stage that depends on a difference is downstream, an independent one is not") {
  const SourceInfo info = synthetic_info({LayerKind::csa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  auto& tensors = subject.layers[0].tensors;
  for (const TensorId id :
       {TensorId::q_latent, TensorId::q, TensorId::compress_kv, TensorId::attention_out}) {
    test::flip(tensors.at(id), test::judged_element(id, tensors.at(id)));
  }
  const StepComparison result = compare_bits(info, reference, subject);
  const std::vector<const Comparison*> found = differing(result);
  REQUIRE(found.size() == 4);
  const auto of = [&](TensorId id) {
    return **std::ranges::find_if(found, [&](const Comparison* c) { return c->id == id; });
  };
  REQUIRE_FALSE(of(TensorId::q_latent).downstream);
  REQUIRE(of(TensorId::q).downstream);
  REQUIRE(of(TensorId::q).inputs == Inputs::different);
  REQUIRE_FALSE(of(TensorId::compress_kv).downstream);
  REQUIRE(of(TensorId::attention_out).downstream);
  const std::vector<std::string>& named = of(TensorId::attention_out).inputs_compared;
  REQUIRE(std::ranges::find(named, "q.up/q*") != named.end());
  REQUIRE(std::ranges::find(named, "kv.window/page_bytes") != named.end());
  REQUIRE(std::ranges::find(named, "cache window") != named.end());
}

TEST_CASE("within a stage a tensor made from a different one is downstream") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  auto& tensors = subject.layers[0].tensors;
  for (const TensorId id : {TensorId::window_codes, TensorId::window_page_bytes, TensorId::window_rope}) {
    test::flip(tensors.at(id), test::judged_element(id, tensors.at(id)));
  }
  Comparator comparator(info, info, Rules(RuleSet::bits));
  const StepComparison result = comparator.compare(reference, subject);
  for (const Comparison* c : differing(result)) {
    INFO(c->tensor);
    REQUIRE(c->downstream == (c->tensor == "page_bytes"));
  }
  REQUIRE(comparator.totals().failed == 2);
  REQUIRE(comparator.totals().downstream == 1);
  REQUIRE(comparator.totals().first_divergence->tensor == "codes");
}

TEST_CASE(
    "what a step left different in a cache is inherited by the next step until the digests agree again") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation reference = synthetic_step(info);
  StepObservation broken = reference;
  broken.layers[0].state_digests[Cache::window] = std::string(32, 'e');
  StepObservation consequence = reference;
  test::flip(consequence.layers[0].tensors.at(TensorId::attention_out), 0);

  Comparator comparator(info, info, Rules(RuleSet::bits));
  REQUIRE(comparator.compare(reference, broken).failed());
  StepComparison second = comparator.compare(reference, consequence);
  REQUIRE(differing(second)[0]->id == TensorId::attention_out);
  REQUIRE(differing(second)[0]->downstream);
  // The digests of the second step were equal: a third difference is new.
  second = comparator.compare(reference, consequence);
  REQUIRE_FALSE(differing(second)[0]->downstream);
}

TEST_CASE("chained layers inherit through hidden") {
  for (const bool chain : {true, false}) {
    SourceInfo info = synthetic_info({LayerKind::swa, LayerKind::swa});
    info.config.chain = chain;
    const StepObservation reference = synthetic_step(info);
    StepObservation subject = reference;
    test::flip(subject.layers[0].tensors.at(TensorId::hidden_out), 0);
    test::flip(subject.layers[1].tensors.at(TensorId::hidden), 0);
    const StepComparison result = compare_bits(info, reference, subject);
    REQUIRE(differing(result).size() == 2);
    REQUIRE(differing(result)[1]->downstream == chain);
  }
}

TEST_CASE("with fed inputs every difference is introduced where it is seen") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  test::flip(subject.layers[0].tensors.at(TensorId::q_latent), 0);
  test::flip(subject.layers[0].tensors.at(TensorId::q), 0);
  CompareOptions options;
  options.fed = true;
  const StepComparison result =
      Comparator(info, info, Rules(RuleSet::bits), options).compare(reference, subject);
  for (const Comparison* c : differing(result)) REQUIRE_FALSE(c->downstream);
}

TEST_CASE("what is not compared is listed with its reason") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  subject.layers[0].tensors.erase(TensorId::q);
  subject.layers[0].state_digests.clear();
  CompareOptions options;
  options.wanted = [](int, TensorId id) { return id != TensorId::hidden_out; };
  options.unwanted_reason = "not selected by --stages";
  Comparator comparator(info, info, Rules(RuleSet::bits), options);
  const StepComparison result = comparator.compare(reference, subject);
  REQUIRE(result.skips.size() == 3);
  REQUIRE(comparator.totals().skipped == 1);
  REQUIRE(comparator.totals().not_produced == 2);
  REQUIRE(result.skips[0].tensor == "q");
  REQUIRE(result.skips[0].reason == "not produced by the subject");
  REQUIRE(result.skips[1].tensor == "hidden_out");
  REQUIRE(result.skips[1].reason == "not selected by --stages");
  REQUIRE(result.skips[2].tensor == "window");
}

TEST_CASE("what a side had to hold and does not is a finding, the rest is not produced") {
  const SourceInfo info = synthetic_info({LayerKind::csa});
  const StepObservation whole = synthetic_step(info);
  StepObservation lacking = whole;
  lacking.layers[0].tensors.erase(TensorId::q);
  lacking.layers[0].state_digests.erase(Cache::window);
  lacking.batch.prefix = Tensor();
  const auto compared = [&](const StepObservation& a, const StepObservation& b, Due due) {
    CompareOptions options;
    options.due = std::move(due);
    Comparator comparator(info, info, Rules(RuleSet::bits), options);
    const StepComparison step = comparator.compare(a, b);
    REQUIRE(comparator.totals().findings == static_cast<std::int64_t>(step.findings.size()));
    return step;
  };
  const StepComparison tolerated = compared(whole, lacking, {});
  REQUIRE(tolerated.findings.empty());
  REQUIRE(tolerated.skips.size() == 3);
  REQUIRE_FALSE(tolerated.failed());
  for (const bool reference_lacks : {false, true}) {
    const StepObservation& a = reference_lacks ? lacking : whole;
    const StepObservation& b = reference_lacks ? whole : lacking;
    const StepComparison step = compared(a, b, [&](bool reference, std::int64_t, std::optional<TensorId>) {
      return reference == reference_lacks;
    });
    REQUIRE(step.failed());
    REQUIRE(step.findings.size() == 3);
    REQUIRE(step.skips.empty());
    const std::string side = reference_lacks ? "is not in the reference" : "is not in the subject";
    for (const Finding& finding : step.findings) {
      REQUIRE(finding.kind == "missing");
      REQUIRE(finding.message.find(side) != std::string::npos);
    }
  }
  // Only the tensor was asked for.
  const StepComparison one = compared(
      whole, lacking, [](bool, std::int64_t, std::optional<TensorId> id) { return id == TensorId::q; });
  REQUIRE(one.findings.size() == 1);
  REQUIRE(one.findings[0].message.starts_with("q.up/q is not in the subject"));
  REQUIRE(one.skips.size() == 2);
}

TEST_CASE("scales of another shape are not read beside the codes") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  StepObservation reference = synthetic_step(info);
  reference.layers[0].tensors.at(TensorId::window_codes).as<std::uint8_t>()[0] = 0x38;                 // 1
  std::ranges::fill(reference.layers[0].tensors.at(TensorId::window_scales).bytes(), std::byte{129});  // 4
  StepObservation subject = reference;
  test::flip(subject.layers[0].tensors.at(TensorId::window_codes), 0);
  const auto decoded = [&] {
    const StepComparison step = Comparator(info, info, Rules(RuleSet::values)).compare(reference, subject);
    const auto codes = std::ranges::find_if(
        step.comparisons, [](const Comparison& c) { return c.id == TensorId::window_codes; });
    return codes->reference.decoded.value();
  };
  REQUIRE(decoded() == 4);
  Tensor fewer(DType::float8_e8m0fnu, {test::kTokens, 3});
  subject.layers[0].tensors.at(TensorId::window_scales) = fewer;
  REQUIRE(decoded() == 1);
  fewer = Tensor(DType::float8_e8m0fnu, {2, 7});  // too few rows on both sides
  reference.layers[0].tensors.at(TensorId::window_scales) = fewer;
  subject.layers[0].tensors.at(TensorId::window_scales) = fewer;
  REQUIRE(decoded() == 1);
}

TEST_CASE("a capture without slots is compared without them") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation whole = synthetic_step(info);
  StepObservation capture = whole;
  capture.batch.slot = Tensor(DType::int32, {0});
  capture.batch.page = Tensor(DType::int32, {0});
  const StepComparison step = compare_bits(info, whole, capture);
  REQUIRE_FALSE(step.failed());
  REQUIRE(step.skips.size() == 2);
}

TEST_CASE("a comparison that matches nothing says so") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  StepObservation reference;
  reference.layers.resize(1);
  StepObservation subject = reference;
  reference.layers[0].tensors[TensorId::q] = Tensor(DType::bfloat16, {1, 1, 4});
  Comparator comparator(info, info, Rules(RuleSet::bits));
  comparator.compare(reference, subject);
  REQUIRE(comparator.totals().nothing_compared());
  REQUIRE(comparator.totals().passed());
}

TEST_CASE("other shapes, dtypes and geometries") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  const StepObservation reference = synthetic_step(info);
  StepObservation subject = reference;
  subject.layers[0].tensors[TensorId::q] = Tensor(DType::bfloat16, {7, 2, 512});
  subject.layers[0].tensors[TensorId::attention_lse] = Tensor(DType::bfloat16, {7, 4});
  const StepComparison result = compare_bits(info, reference, subject);
  REQUIRE(differing(result).size() == 2);
  REQUIRE(differing(result)[0]->note == "other shape: reference [7, 4, 512], subject [7, 2, 512]");
  REQUIRE(differing(result)[1]->note == "other dtype: reference float32, subject bfloat16");
  const SourceInfo other = synthetic_info({LayerKind::csa});
  REQUIRE_THROWS_AS(Comparator(info, other, Rules(RuleSet::bits)), UsageError);
}

TEST_CASE("lists of writes are compared by slot, owner and index") {
  const SourceInfo info = synthetic_info({LayerKind::swa});
  StepObservation reference = synthetic_step(info);
  reference.layers[0].writes = {{Stage::kv_window, Cache::window, 72, 0, 8, {}},
                                {Stage::kv_window, Cache::window, 73, 0, 9, {}}};
  StepObservation subject = reference;
  REQUIRE(differing(compare_bits(info, reference, subject)).empty());
  subject.layers[0].writes[1].slot = 74;
  const StepComparison result = compare_bits(info, reference, subject);
  REQUIRE(differing(result).size() == 1);
  REQUIRE(differing(result)[0]->tensor == "writes");
  REQUIRE(differing(result)[0]->mismatches == 2);
  REQUIRE(differing(result)[0]->note ==
          "written by the reference only: window slot 73 of request a, position 9");
}

}  // namespace dsv4::compare
