#include "math_support.hpp"
#include "reference/indexer_scores.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

struct Problem {
  int heads;
  std::int64_t count;
  std::vector<std::uint8_t> codes, query_scales;
  std::vector<float> weights, keys, scales;
  std::vector<float> packed;  ///< made by call_of

  /// Value d of head h by the definition of the code.
  float query(int h, int d) const {
    const std::uint8_t code = codes[h * 128 + d];
    if (query_scales.empty()) return e4m3_value(code);
    return e2m1_value(code) * std::ldexp(1.0F, query_scales[h * 4 + d / 32] - 127);
  }
};

Problem make(int heads, std::int64_t count, std::uint32_t seed, bool fp4 = false) {
  Numbers numbers(seed);
  Problem p{heads, count, {}, {}, numbers.narrows(heads), numbers.narrows(count * 128), {}, {}};
  for (int i = 0; i < heads * 128; ++i) {
    p.codes.push_back(fp4 ? static_cast<std::uint8_t>(numbers.below(16)) : numbers.code());
  }
  for (int i = 0; fp4 && i < heads * 4; ++i) {
    p.query_scales.push_back(static_cast<std::uint8_t>(122 + numbers.below(10)));
  }
  for (std::int64_t j = 0; j < count; ++j) p.scales.push_back(std::ldexp(1.0F, numbers.below(20) - 10));
  return p;
}

float literal(const Problem& p, std::int64_t j, bool bf16_steps, bool scaled) {
  std::vector<float> terms;
  for (int h = 0; h < p.heads; ++h) {
    std::vector<float> query;
    for (int d = 0; d < 128; ++d) query.push_back(p.query(h, d));
    float t = literal_dot(query.data(), p.keys.data() + j * 128, 128);
    if (bf16_steps) t = via_bf16(t);
    if (!(t > 0)) t = 0;
    if (bf16_steps) t = via_bf16(t * p.weights[h]);
    terms.push_back(t);
  }
  const float sum = bf16_steps ? via_bf16(literal_sum(terms.data(), p.heads))
                               : literal_dot(terms.data(), p.weights.data(), p.heads);
  return scaled ? sum * p.scales[j] : sum;
}

IndexScoreCall call_of(Problem& p, bool scaled, float* out) {
  p.packed.assign(static_cast<std::size_t>(packed_index_keys(p.count)), kNan);
  pack_index_keys(p.keys.data(), p.count, p.packed.data());
  return {p.codes.data(),
          p.query_scales.empty() ? nullptr : p.query_scales.data(),
          p.weights.data(),
          p.packed.data(),
          scaled ? p.scales.data() : nullptr,
          p.count,
          out};
}

}  // namespace

TEST_CASE("the constant of the head weights") {
  REQUIRE(bits(index_weight_constant(64)) == 0x3C3504F3U);  // 2^-6.5
  REQUIRE(index_weight_constant(128) == 0.0078125F);
}

TEST_CASE("head weights fold constant and scale") {
  Numbers numbers(81);
  const std::vector<std::uint16_t> w = numbers.bf16s(4);
  const std::vector<std::uint8_t> scales{120, 127, 130, 90};
  std::vector<float> f32(4);
  std::vector<float> bf16(4);
  std::vector<float> fp4(4);
  index_head_weights(w.data(), 4, scales.data(), IndexRound::f32, f32.data());
  index_head_weights(w.data(), 4, scales.data(), IndexRound::bf16, bf16.data());
  index_head_weights(w.data(), 4, nullptr, IndexRound::f32, fp4.data());
  const auto c = static_cast<float>(1 / std::sqrt(512.0));
  for (int h = 0; h < 4; ++h) {
    const float product = from_bf16(w[h]) * c;
    REQUIRE(f32[h] == std::ldexp(product, scales[h] - 127));
    REQUIRE(bf16[h] == std::ldexp(via_bf16(product), scales[h] - 127));
    REQUIRE(fp4[h] == product);
  }
}

TEST_CASE("a negative dot counts as zero") {
  on_every_isa([] {
    Problem p = make(2, 1, 1);
    p.codes.assign(256, 0x38);  // 1
    std::fill(p.codes.begin() + 128, p.codes.end(), std::uint8_t{0xB8});
    p.keys.assign(128, 0.5F);
    p.weights = {3.0F, 100.0F};
    p.scales = {4.0F};
    float score = 0;
    index_scores(call_of(p, true, &score), 2, IndexRound::f32);
    REQUIRE(score == 64 * 3 * 4);
  });
}

TEST_CASE("scores equal the literal rule") {
  on_every_isa([] {
    int roundings_differ = 0;
    for (const int heads : {1, 4, 33, 64, 70}) {
      for (const std::int64_t count : {1, 5, 12, 17, 32, 50}) {
        for (const bool scaled : {false, true}) {  // FP8 has key scales, FP4 scales in its query
          Problem p = make(heads, count, static_cast<std::uint32_t>(heads * 100 + count), !scaled);
          std::vector<float> f32(count);
          std::vector<float> bf16(count);
          index_scores(call_of(p, scaled, f32.data()), heads, IndexRound::f32);
          index_scores(call_of(p, scaled, bf16.data()), heads, IndexRound::bf16);
          for (std::int64_t j = 0; j < count; ++j) {
            REQUIRE(bits(f32[j]) == bits(literal(p, j, false, scaled)));
            REQUIRE(bits(bf16[j]) == bits(literal(p, j, true, scaled)));
            if (f32[j] != bf16[j]) ++roundings_differ;
          }
        }
      }
    }
    REQUIRE(roundings_differ > 300);
  });
}

TEST_CASE("many tokens at once give the scores of each alone") {
  on_every_isa([] {
    std::vector<Problem> problems;
    for (const std::int64_t count : {0, 1, 1023, 1024, 2500}) {
      problems.push_back(make(4, count, static_cast<std::uint32_t>(count)));
    }
    std::vector<std::vector<float>> scores;
    for (const Problem& p : problems) scores.emplace_back(p.count);
    std::vector<IndexScoreCall> calls;
    for (std::size_t i = 0; i < problems.size(); ++i)
      calls.push_back(call_of(problems[i], true, scores[i].data()));
    index_scores(calls, 4, IndexRound::f32);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      std::vector<float> alone(scores[i].size());
      index_scores(call_of(problems[i], true, alone.data()), 4, IndexRound::f32);
      REQUIRE(bits(scores[i]) == bits(alone));
      for (std::int64_t j = 0; j < problems[i].count; j += 97) {
        REQUIRE(bits(scores[i][j]) == bits(literal(problems[i], j, false, true)));
      }
    }
  });
}

TEST_CASE("NaN in a weight reaches every score, NaN in a key counts as zero") {
  on_every_isa([] {
    Problem p = make(4, 14, 5);
    std::vector<float> clean(14);
    std::vector<float> out(14);
    index_scores(call_of(p, true, clean.data()), 4, IndexRound::f32);
    p.keys[3 * 128 + 7] = kNan;
    index_scores(call_of(p, true, out.data()), 4, IndexRound::f32);
    for (int j = 0; j < 14; ++j) REQUIRE(bits(out[j]) == (j == 3 ? 0U : bits(clean[j])));
    p.weights[2] = kNan;
    index_scores(call_of(p, true, out.data()), 4, IndexRound::f32);
    for (const float s : out) REQUIRE(std::isnan(s));
  });
}
