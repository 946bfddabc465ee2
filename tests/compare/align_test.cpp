#include "compare/align.hpp"

#include <algorithm>
#include <bit>

#include "compare/synthetic.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

struct TokenRow {
  std::int32_t request;
  std::int32_t position;
  float value;  ///< q_latent of this token
};
struct EntryRow {
  std::int32_t request;
  std::int32_t index;
  float value;
};

Tensor ints(const std::vector<std::int32_t>& values) {
  Tensor tensor(DType::int32, {static_cast<std::int64_t>(values.size())});
  std::ranges::copy(values, tensor.as<std::int32_t>().begin());
  return tensor;
}

// Tensors of two widths: q_latent [token, 4], scores [token, width], pooled [entry, 2].
StepObservation step_of(std::int64_t number, const std::vector<TokenRow>& tokens,
                        const std::vector<EntryRow>& entries, std::int64_t width) {
  StepObservation step;
  step.step = number;
  step.layers.resize(1);
  auto& tensors = step.layers[0].tensors;
  std::vector<std::int32_t> request;
  std::vector<std::int32_t> position;
  Tensor latent(DType::bfloat16, {static_cast<std::int64_t>(tokens.size()), 4});
  Tensor scores(DType::float32, {static_cast<std::int64_t>(tokens.size()), width});
  std::vector<std::int32_t> visible;
  Tensor slots(DType::int32, {static_cast<std::int64_t>(tokens.size()), 128});
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    request.push_back(tokens[row].request);
    position.push_back(tokens[row].position);
    visible.push_back(tokens[row].request < 0 ? -1 : (tokens[row].position + 1) / 4);
    for (std::size_t i = 0; i < 4; ++i) {
      latent.as<std::uint16_t>()[row * 4 + i] = static_cast<std::uint16_t>(
          std::bit_cast<std::uint32_t>(tokens[row].value + static_cast<float>(i)) >> 16);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      scores.as<float>()[row * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)] =
          i < visible.back() ? tokens[row].value * static_cast<float>(i + 1)
                             : 77.0F + static_cast<float>(number);
    }
    for (std::size_t i = 0; i < 128; ++i) {
      slots.as<std::int32_t>()[row * 128 + i] =
          static_cast<std::int32_t>(number * 1000 + static_cast<int>(row));
    }
  }
  step.batch.request = ints(request);
  step.batch.position = ints(position);
  tensors[TensorId::q_latent] = latent;
  tensors[TensorId::scores] = scores;
  tensors[TensorId::visible] = ints(visible);
  tensors[TensorId::window_slots] = slots;
  std::vector<std::int32_t> entry_request;
  std::vector<std::int32_t> entry_index;
  Tensor pooled(DType::float32, {static_cast<std::int64_t>(entries.size()), 2});
  for (std::size_t row = 0; row < entries.size(); ++row) {
    entry_request.push_back(entries[row].request);
    entry_index.push_back(entries[row].index);
    pooled.as<float>()[row * 2] = entries[row].value;
    pooled.as<float>()[row * 2 + 1] = -entries[row].value;
  }
  tensors[TensorId::compress_pooled] = pooled;
  tensors[TensorId::compress_pool_request] = ints(entry_request);
  tensors[TensorId::compress_pool_index] = ints(entry_index);
  step.layers[0].state_digests[Cache::window] = "w" + std::to_string(number);
  return step;
}

const Comparison* find(const StepComparison& result, std::string_view tensor) {
  const auto found = std::ranges::find(result.comparisons, tensor, &Comparison::tensor);
  return found == result.comparisons.end() ? nullptr : &*found;
}

// One chunk of eight tokens of request a.
std::vector<TokenRow> tokens_of(std::int32_t request, std::int32_t begin, std::int32_t end) {
  std::vector<TokenRow> rows;
  for (std::int32_t p = begin; p < end; ++p) {
    rows.push_back({request, p, 1.0F + static_cast<float>(p) + 0.5F * static_cast<float>(request)});
  }
  return rows;
}

struct Runs {
  SourceInfo info = test::synthetic_info({LayerKind::csa});
  std::vector<std::string> names = {"a", "b"};
  std::vector<StepObservation> whole{step_of(0, tokens_of(0, 0, 8), {{0, 0, 5}, {0, 1, 6}}, 2)};
  std::vector<StepObservation> parts;

  Runs() {
    // The same tokens in three steps, among rows of another request and a padding row, wider scores.
    std::vector<TokenRow> second = tokens_of(1, 20, 22);
    for (const TokenRow& row : tokens_of(0, 3, 5)) second.push_back(row);
    second.push_back({-1, -1, 0});
    parts.push_back(step_of(0, tokens_of(0, 0, 3), {}, 1));
    parts.push_back(step_of(1, second, {{0, 0, 5}}, 5));
    parts.push_back(step_of(2, tokens_of(0, 5, 8), {{0, 1, 6}}, 2));
  }
  StepComparison compare(Totals* totals = nullptr, bool final_state = false) {
    TokenAligner aligner(info, info, Rules(RuleSet::bits));
    aligner.compare_final_state(final_state);
    for (const auto& step : whole) aligner.add(Side::reference, step, request_keys(names));
    for (const auto& step : parts) aligner.add(Side::subject, step, request_keys(names));
    StepComparison result = aligner.compare();
    if (totals != nullptr) *totals = aligner.totals();
    return result;
  }
};

}  // namespace

TEST_CASE("a tensor that a side had to hold in its whole run, and does not, is a finding") {
  Runs runs;
  for (StepObservation& step : runs.parts) step.layers[0].tensors.erase(TensorId::q_latent);
  for (const bool due : {false, true}) {
    TokenAligner aligner(runs.info, runs.info, Rules(RuleSet::bits),
                         [due](bool reference, std::int64_t step, std::optional<TensorId> id) {
                           return due && !reference && step == -1 && id == TensorId::q_latent;
                         });
    aligner.compare_final_state(false);
    for (const auto& step : runs.whole) aligner.add(Side::reference, step, request_keys(runs.names));
    for (const auto& step : runs.parts) aligner.add(Side::subject, step, request_keys(runs.names));
    const StepComparison result = aligner.compare();
    REQUIRE(result.failed() == due);
    REQUIRE(result.findings.size() == (due ? 1 : 0));
    REQUIRE(aligner.totals().findings == (due ? 1 : 0));
  }
}

TEST_CASE("a run in chunks equals the run at once, token by token") {
  Runs runs;
  Totals totals;
  const StepComparison result = runs.compare(&totals);
  REQUIRE_FALSE(result.failed());
  REQUIRE(find(result, "q_latent")->elements == 8 * 4);
  REQUIRE(find(result, "q_latent")->verdict == Verdict::equal);
  // Scores: 0 0 0 1 1 1 1 2 visible.
  REQUIRE(find(result, "scores")->elements == 6);
  REQUIRE(find(result, "scores")->verdict == Verdict::equal);
  REQUIRE(find(result, "pooled")->elements == 4);
  REQUIRE(find(result, "window") == nullptr);
  REQUIRE(find(result, "position") == nullptr);
  REQUIRE(totals.compared == 4);
  // Physical slots are no property of a token; the other request has no counterpart.
  const auto skip = [&](std::string_view tensor) {
    return *std::ranges::find(result.skips, tensor, &Skip::tensor);
  };
  REQUIRE(skip("window").kind == Skip::Kind::skipped);
  REQUIRE(skip("q_latent").kind == Skip::Kind::not_produced);
  REQUIRE(skip("q_latent").reason == "2 rows only in the subject, first request b position 20");
}

TEST_CASE("a difference is named by request and position, whatever its step") {
  Runs runs;
  Tensor& latent = runs.parts[2].layers[0].tensors[TensorId::q_latent];
  test::flip(latent, 1 * 4 + 3);  // position 6
  test::flip(runs.parts[2].layers[0].tensors[TensorId::compress_pooled], 1);
  const StepComparison result = runs.compare();
  const Comparison* c = find(result, "q_latent");
  REQUIRE(c->failed);
  REQUIRE(c->mismatches == 1);
  REQUIRE(c->meaning.request == "a");
  REQUIRE(c->meaning.position == 6);
  REQUIRE(c->first == std::vector<std::int64_t>{6, 3});
  c = find(result, "pooled");
  REQUIRE(c->failed);
  REQUIRE(c->meaning.request == "a");
  REQUIRE(c->meaning.entry == 1);
  REQUIRE(c->meaning.entry_last == 7);
}

TEST_CASE("the last occurrence of a recomputed token holds") {
  Runs runs;
  // A rejected row at position 5 before the real one.
  runs.parts.insert(runs.parts.begin() + 2, step_of(2, {{0, 5, 99.0F}}, {}, 2));
  REQUIRE_FALSE(runs.compare().failed());
  // The same row after it.
  runs.parts.push_back(step_of(4, {{0, 5, 99.0F}}, {}, 2));
  const StepComparison result = runs.compare();
  REQUIRE(find(result, "q_latent")->failed);
  REQUIRE(find(result, "q_latent")->meaning.position == 5);
}

TEST_CASE("final state is compared on request") {
  Runs runs;
  Totals totals;
  StepComparison result = runs.compare(&totals, true);
  REQUIRE(find(result, "window")->failed);  // "w0" against "w2"
  runs.parts.back().layers[0].state_digests[Cache::window] = "w0";
  result = runs.compare(&totals, true);
  REQUIRE_FALSE(result.failed());
}

TEST_CASE("names admitted again are other requests") {
  REQUIRE(request_keys({"a", "b", "a", "a"}) == std::vector<std::string>{"a", "b", "a#2", "a#3"});
  Runs runs;
  runs.names = {"a", "a"};
  const StepComparison result = runs.compare();
  REQUIRE_FALSE(result.failed());
  REQUIRE(std::ranges::find(result.skips, "q_latent", &Skip::tensor)->reason ==
          "2 rows only in the subject, first request a#2 position 20");
}

TEST_CASE("runs without a common token compare nothing") {
  Runs runs;
  runs.whole = {step_of(0, tokens_of(1, 0, 3), {}, 1)};
  runs.parts = {step_of(0, tokens_of(0, 0, 3), {}, 1)};
  Totals totals;
  runs.compare(&totals);
  REQUIRE(totals.nothing_compared());
  REQUIRE(totals.not_produced > 0);
}

}  // namespace dsv4::compare
