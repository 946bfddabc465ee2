#include "compare/statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compare/synthetic.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {
namespace {

using test::set;

// Two tokens and a padding row; one block of 64 codes for each of 7 scales.
struct Step {
  SourceInfo info = test::synthetic_info({LayerKind::swa});
  StepObservation step;

  Step() {
    step.step = 2;
    step.layers.resize(1);
    step.batch.request = Tensor(DType::int32, {3});
    set<std::int32_t>(step.batch.request, 2, -1);
    step.batch.position = Tensor(DType::int32, {3});
  }
  Tensor& tensor(TensorId id) { return step.layers[0].tensors[id]; }
  TensorStatistics of(TensorId id) const {
    const auto rows = statistics(step, info);
    return *std::ranges::find(rows, id, &TensorStatistics::id);
  }
};

}  // namespace

TEST_CASE("range and rms leave padding rows and non-finite elements out") {
  Step s;
  Tensor lse(DType::float32, {3, 2});
  for (const auto& [at, value] :
       {std::pair{0, 3.0F}, {1, -4.0F}, {2, INFINITY}, {3, 0.0F}, {4, 1000.0F}, {5, NAN}}) {
    set<float>(lse, at, value);
  }
  s.tensor(TensorId::attention_lse) = lse;
  const TensorStatistics row = s.of(TensorId::attention_lse);
  REQUIRE(row.elements == 4);
  REQUIRE(row.minimum == -4);
  REQUIRE(row.maximum == 3);
  REQUIRE(row.rms == std::sqrt(25.0 / 3));
  REQUIRE(row.nonfinite.count == 1);
  REQUIRE(row.nonfinite.first == std::vector<std::int64_t>{1, 0});
  REQUIRE(row.nonfinite.meaning.request == "a");
  REQUIRE_FALSE(row.clamped.has_value());
}

TEST_CASE("codes: range of the dequantised values, shares clamped and flushed, scale exponents") {
  Step s;
  Tensor codes(DType::float8_e4m3fn, {3, 448});
  Tensor scales(DType::float8_e8m0fnu, {3, 7});
  for (std::int64_t i = 0; i < 896; ++i) set<std::uint8_t>(codes, i, 0x38);  // 1
  for (std::int64_t i = 0; i < 14; ++i) set<std::uint8_t>(scales, i, i < 7 ? 127 : 120);
  set<std::uint8_t>(codes, 0, 0x7E);        // 448, clamped
  set<std::uint8_t>(codes, 1, 0xFE);        // -448
  set<std::uint8_t>(codes, 448, 0x00);      // flushed, second row
  set<std::uint8_t>(codes, 2 * 448, 0x7E);  // padding
  s.tensor(TensorId::window_codes) = codes;
  s.tensor(TensorId::window_scales) = scales;
  const TensorStatistics row = s.of(TensorId::window_codes);
  REQUIRE(row.elements == 896);
  REQUIRE(row.minimum == -448);
  REQUIRE(row.maximum == 448);
  REQUIRE(*row.clamped == 2.0 / 896);
  REQUIRE(*row.flushed == 1.0 / 896);
  REQUIRE(row.rms == std::sqrt((2 * 448.0 * 448.0 + 446 + 447 * 0x1p-14) / 896));
  REQUIRE(s.of(TensorId::window_scales).scale_exponents == std::map<int, std::int64_t>{{-7, 7}, {0, 7}});
}

TEST_CASE("scores at or beyond visible do not count") {
  Step s;
  Tensor scores(DType::float32, {3, 4});
  for (std::int64_t i = 0; i < 12; ++i) set<float>(scores, i, static_cast<float>(i));
  s.tensor(TensorId::scores) = scores;
  s.tensor(TensorId::visible) = Tensor(DType::int32, {3});
  set<std::int32_t>(s.tensor(TensorId::visible), 0, 1);
  set<std::int32_t>(s.tensor(TensorId::visible), 1, 3);
  const TensorStatistics row = s.of(TensorId::scores);
  REQUIRE(row.elements == 4);
  REQUIRE(row.maximum == 6);
}

TEST_CASE("error figures: Frobenius ratio, worst difference in RMS, share of codes") {
  Step a;
  Step b;
  a.tensor(TensorId::attention_lse) = Tensor(DType::float32, {3, 2});
  b.tensor(TensorId::attention_lse) = Tensor(DType::float32, {3, 2});
  for (std::int64_t i = 0; i < 4; ++i) {
    set<float>(a.tensor(TensorId::attention_lse), i, 2.0F);
    set<float>(b.tensor(TensorId::attention_lse), i, 2.0F);
  }
  set<float>(a.tensor(TensorId::attention_lse), 1, 2.5F);
  set<float>(a.tensor(TensorId::attention_lse), 5, 100.0F);  // padding
  std::vector<ErrorFigures> rows = error_figures(a.step, b.step);
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].elements == 4);
  REQUIRE(rows[0].frobenius_ratio == 0.5 / 4);
  REQUIRE(rows[0].worst_in_rms == 0.25);
  REQUIRE_FALSE(rows[0].codes_differ.has_value());
  REQUIRE_FALSE(rows[0].worst_ratio.has_value());

  // The yardstick's float64 values and bounds.
  Tensor exact(DType::float64, {3, 2});
  Tensor bounds(DType::float64, {3, 2});
  for (std::int64_t i = 0; i < 4; ++i) set<double>(exact, i, 2.0);
  std::ranges::fill(bounds.as<double>(), 1.0);
  b.step.layers[0].unrounded[TensorId::attention_lse] = exact;
  b.step.layers[0].bounds[TensorId::attention_lse] = bounds;
  rows = error_figures(a.step, b.step);
  REQUIRE(rows[0].frobenius_ratio == 0.5 / 4);
  // 2.5 stands for values from 2.5 - 2^-23 on: that far from 2 is 0.5 - 2^-23.
  REQUIRE(*rows[0].worst_ratio == 0.5 - 0x1p-23);

  // Codes compare as values: scale doubled, codes halved is no error, but the codes differ.
  Tensor codes(DType::float8_e4m3fn, {3, 448});
  Tensor scales(DType::float8_e8m0fnu, {3, 7});
  std::ranges::fill(codes.as<std::uint8_t>(), std::uint8_t{0x40});
  std::ranges::fill(scales.as<std::uint8_t>(), std::uint8_t{120});
  b.step.layers[0] = {};
  a.step.layers[0] = {};
  b.tensor(TensorId::window_codes) = codes;
  b.tensor(TensorId::window_scales) = scales;
  for (std::int64_t i = 0; i < 64; ++i) set<std::uint8_t>(codes, i, 0x38);
  set<std::uint8_t>(scales, 0, 121);
  a.tensor(TensorId::window_codes) = codes;
  a.tensor(TensorId::window_scales) = scales;
  rows = error_figures(a.step, b.step);
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].frobenius_ratio == 0);
  REQUIRE(*rows[0].codes_differ == 64.0 / 896);
}

TEST_CASE("the error table adds squares over steps and keeps the worst") {
  Step a;
  Step b;
  a.tensor(TensorId::attention_lse) = Tensor(DType::float32, {3, 2});
  b.tensor(TensorId::attention_lse) = Tensor(DType::float32, {3, 2});
  for (std::int64_t i = 0; i < 4; ++i) {
    set<float>(a.tensor(TensorId::attention_lse), i, 1.0F);
    set<float>(b.tensor(TensorId::attention_lse), i, 1.0F);
  }
  ErrorTable table;
  table.add(a.step, b.step);
  set<float>(a.tensor(TensorId::attention_lse), 0, 2.0F);
  table.add(a.step, b.step);
  const std::vector<ErrorFigures> rows = table.rows();
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].elements == 8);
  REQUIRE(rows[0].frobenius_ratio == std::sqrt(1.0 / 8));
  REQUIRE(rows[0].worst_in_rms == 1);
  REQUIRE(rows[0].layer == -1);
}

}  // namespace dsv4::compare
