#include <omp.h>

#include "math_support.hpp"
#include "model/error.hpp"
#include "reference/linear.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

std::vector<float> e4m3_table() {
  std::vector<float> table;
  for (int code = 0; code < 256; ++code) table.push_back(e4m3_value(static_cast<std::uint8_t>(code)));
  return table;
}
const std::vector<float> kE4m3 = e4m3_table();

float power_of_two(std::uint8_t byte) {
  return std::ldexp(1.0F, byte - 127);
}

struct Problem {
  Matrix w;
  std::int64_t tokens;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<std::uint16_t> bf16;

  std::int64_t blocks() const { return (w.columns + 127) / 128; }
  Activations fp8() const { return {codes.data(), scales.data(), nullptr, 0, 0}; }
  Activations wide() const { return {nullptr, nullptr, bf16.data(), 0, 0}; }
};

Problem make(Matrix::Format format, std::int64_t rows, std::int64_t columns, std::int64_t tokens,
             std::uint32_t seed) {
  Numbers numbers(seed);
  Problem p;
  p.w.format = format;
  p.w.rows = rows;
  p.w.columns = columns;
  p.tokens = tokens;
  const auto scale = [&] { return static_cast<std::uint8_t>(117 + numbers.below(20)); };
  if (format == Matrix::Format::bf16) {
    p.w.bf16 = numbers.bf16s(rows * columns);
  } else {
    for (std::int64_t i = 0; i < rows * columns; ++i) p.w.codes.push_back(numbers.code());
    for (std::int64_t i = 0; i < (rows + 127) / 128 * p.blocks(); ++i) p.w.scales.push_back(scale());
  }
  for (std::int64_t i = 0; i < tokens * columns; ++i) p.codes.push_back(numbers.code());
  for (std::int64_t i = 0; i < tokens * p.blocks(); ++i) p.scales.push_back(scale());
  p.bf16 = numbers.bf16s(tokens * columns);
  return p;
}

/// Section 6 for one output. Codes go with codes, everything else is bf16.
float literal(const Problem& p, bool fp8_input, std::int64_t t, std::int64_t n) {
  float out = 0.0F;
  for (std::int64_t block = 0; block < p.blocks(); ++block) {
    float b = 0.0F;
    std::uint8_t w_byte = 127;
    if (p.w.format == Matrix::Format::fp8_block128) w_byte = p.w.scales[n / 128 * p.blocks() + block];
    for (std::int64_t k = block * 128; k < std::min(p.w.columns, block * 128 + 128); ++k) {
      float w = 0.0F;
      if (p.w.format == Matrix::Format::bf16) {
        w = from_bf16(p.w.bf16[n * p.w.columns + k]);
      } else {
        w = kE4m3[p.w.codes[n * p.w.columns + k]];
        if (!fp8_input) w = via_bf16(w * power_of_two(w_byte));
      }
      const float x =
          fp8_input ? kE4m3[p.codes[t * p.w.columns + k]] : from_bf16(p.bf16[t * p.w.columns + k]);
      b = std::fma(x, w, b);
    }
    const float s = fp8_input ? power_of_two(p.scales[t * p.blocks() + block]) * power_of_two(w_byte) : 1.0F;
    out = std::fma(s, b, out);
  }
  return out;
}

/// Every output on every instruction set, unrounded and rounded.
void check(const Problem& p, bool fp8_input) {
  std::vector<float> expected;
  std::vector<std::uint16_t> expected_bf16;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t n = 0; n < p.w.rows; ++n) {
      expected.push_back(literal(p, fp8_input, t, n));
      expected_bf16.push_back(literal_bf16(expected.back()));
    }
  }
  const Activations input = fp8_input ? p.fp8() : p.wide();
  on_every_isa([&] {
    INFO(p.tokens << " x " << p.w.rows << " x " << p.w.columns);
    std::vector<float> out(expected.size());
    std::vector<std::uint16_t> rounded(expected.size());
    linear(p.w, all_outputs(p.w), input, p.tokens, out.data(), p.w.rows);
    linear(p.w, all_outputs(p.w), input, p.tokens, rounded.data(), p.w.rows);
    REQUIRE(bits(out) == bits(expected));
    REQUIRE(rounded == expected_bf16);
  });
}

}  // namespace

TEST_CASE("products of many shapes equal the literal rule") {
  std::uint32_t seed = 0;
  for (const std::int64_t tokens : {1, 2, 5, 13, 29}) {
    for (const std::int64_t rows : {1, 7, 16, 33, 130}) {
      for (const std::int64_t columns : {1, 16, 127, 128, 129, 300}) {
        if (tokens * rows > 2000 && columns != 300) continue;
        ++seed;
        check(make(Matrix::Format::fp8_block128, rows, columns, tokens, seed), true);
        check(make(Matrix::Format::fp8_block128, rows, columns, tokens, seed), false);
        check(make(Matrix::Format::bf16, rows, columns, tokens, seed), false);
      }
    }
  }
  REQUIRE(seed == 145);
}

TEST_CASE("a sum begins anew in each block of 128") {
  on_every_isa([] {
    Problem p;
    p.w.rows = 1;
    p.w.columns = 256;
    p.tokens = 1;
    p.w.bf16.assign(256, 0x3F80);  // 1
    p.bf16.assign(256, 0);
    p.bf16[0] = literal_bf16(16777216.0F);
    p.bf16[128] = p.bf16[129] = 0x3F80;
    float out = 0;
    linear(p.w, all_outputs(p.w), p.wide(), 1, &out, 1);
    REQUIRE(out == 16777218.0F);  // one long fold would lose both ones
    p.bf16[129] = 0;
    p.bf16[127] = 0x3F80;
    linear(p.w, all_outputs(p.w), p.wide(), 1, &out, 1);
    REQUIRE(out == 16777216.0F);
  });
}

TEST_CASE("chunks of tokens, thread counts and row ranges do not change a bit") {
  const Problem p = make(Matrix::Format::fp8_block128, 300, 200, 401, 99);  // more tokens than one chunk
  const std::int64_t rows = p.w.rows;
  std::vector<float> all(p.tokens * rows);
  linear(p.w, all_outputs(p.w), p.fp8(), p.tokens, all.data(), rows);
  check(p, true);
  const int threads = omp_get_max_threads();
  for (const int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    std::vector<float> again(all.size());
    linear(p.w, all_outputs(p.w), p.fp8(), p.tokens, again.data(), rows);
    REQUIRE(bits(again) == bits(all));
    for (const std::int64_t first : {0, 128, 131}) {
      std::vector<float> part(p.tokens * 40, 5.0F);
      linear(p.w, {first, 37}, p.fp8(), p.tokens, part.data(), 40);
      for (std::int64_t t = 0; t < p.tokens; ++t) {
        for (int i = 0; i < 37; ++i) REQUIRE(bits(part[t * 40 + i]) == bits(all[t * rows + first + i]));
        REQUIRE(part[t * 40 + 37] == 5.0F);
      }
    }
  }
  omp_set_num_threads(threads);
}

TEST_CASE("rows of activations may lie apart") {
  on_every_isa([] {
    const Problem p = make(Matrix::Format::bf16, 20, 130, 3, 5);
    std::vector<std::uint16_t> spread(3 * 500, 0xFFFF);
    for (int t = 0; t < 3; ++t) std::copy_n(p.bf16.begin() + t * 130, 130, spread.begin() + t * 500);
    std::vector<float> close(60);
    std::vector<float> apart(60);
    linear(p.w, all_outputs(p.w), p.wide(), 3, close.data(), 20);
    linear(p.w, all_outputs(p.w), {nullptr, nullptr, spread.data(), 500, 0}, 3, apart.data(), 20);
    REQUIRE(bits(apart) == bits(close));
  });
}

TEST_CASE("a NaN code reaches the outputs of its token and no other") {
  on_every_isa([] {
    Problem p = make(Matrix::Format::fp8_block128, 40, 256, 14, 3);
    p.codes[5 * 256 + 200] = 0x7F;
    std::vector<float> out(14 * 40);
    linear(p.w, all_outputs(p.w), p.fp8(), 14, out.data(), 40);
    for (int t = 0; t < 14; ++t) {
      for (int n = 0; n < 40; ++n) REQUIRE(std::isnan(out[t * 40 + n]) == (t == 5));
    }
  });
}

TEST_CASE("every weight code is decoded to its value") {
  on_every_isa([] {
    Problem p;
    p.w.format = Matrix::Format::fp8_block128;
    p.w.rows = 256;
    p.w.columns = 256;
    p.w.scales.assign(4, 127);
    for (int i = 0; i < 256 * 256; ++i) p.w.codes.push_back(static_cast<std::uint8_t>(i * 77 + i / 256));
    p.tokens = 1;
    for (int k = 0; k < 256; k += 37) {
      p.codes.assign(256, 0);
      p.codes[static_cast<std::size_t>(k)] = 0x38;  // 1
      p.scales.assign(2, 127);
      Matrix one = p.w;
      for (int i = 0; i < 256 * 256; ++i) {
        if (i % 256 != k) one.codes[static_cast<std::size_t>(i)] = 0;  // 0 x NaN would be NaN
      }
      std::vector<float> out(256);
      linear(one, all_outputs(one), p.fp8(), 1, out.data(), 256);
      for (int n = 0; n < 256; ++n) {
        const float value = kE4m3[p.w.codes[static_cast<std::size_t>(n * 256 + k)]];
        if (std::isnan(value)) REQUIRE(std::isnan(out[static_cast<std::size_t>(n)]));
        if (!std::isnan(value)) REQUIRE(out[static_cast<std::size_t>(n)] == value);
      }
    }
  });
}

TEST_CASE("several products of one input are those of each alone") {
  on_every_isa([] {
    const Problem a = make(Matrix::Format::bf16, 150, 300, 29, 11);
    const Problem b = make(Matrix::Format::fp8_block128, 33, 300, 29, 12);
    std::vector<float> alone_a(29 * 150);
    std::vector<float> alone_b(29 * 33);
    linear(a.w, all_outputs(a.w), a.wide(), 29, alone_a.data(), 150);
    linear(b.w, all_outputs(b.w), a.wide(), 29, alone_b.data(), 33);
    std::vector<float> out_a(alone_a.size());
    std::vector<float> out_b(alone_b.size());
    const std::vector<WholeProduct> both{{&a.w, out_a.data()}, {&b.w, out_b.data()}};
    linear(both, a.wide(), 29);
    REQUIRE(bits(out_a) == bits(alone_a));
    REQUIRE(bits(out_b) == bits(alone_b));
    const Problem narrow = make(Matrix::Format::bf16, 4, 128, 29, 1);
    const std::vector<WholeProduct> uneven{{&a.w, out_a.data()}, {&narrow.w, out_b.data()}};
    REQUIRE_THROWS_AS(linear(uneven, a.wide(), 29), InternalError);
  });
}

TEST_CASE("impossible calls are refused") {
  const Problem p = make(Matrix::Format::bf16, 4, 128, 1, 1);
  std::vector<float> out(4);
  REQUIRE_THROWS_AS(linear(p.w, {2, 3}, p.wide(), 1, out.data(), 4), InternalError);
  REQUIRE_THROWS_AS(linear(p.w, all_outputs(p.w), p.fp8(), 1, out.data(), 4), UsageError);
  REQUIRE_THROWS_AS(linear(p.w, all_outputs(p.w), {}, 1, out.data(), 4), InternalError);
}
