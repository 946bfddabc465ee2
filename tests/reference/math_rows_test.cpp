// RMS norms, rotary embedding, Hadamard rotation.
#include <bit>

#include "math_support.hpp"
#include "model/error.hpp"
#include "reference/hadamard.hpp"
#include "reference/rms_norm.hpp"
#include "reference/rope.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

float literal_factor(const std::vector<float>& x, float eps) {
  const auto n = static_cast<std::int64_t>(x.size());
  const float mean = literal_dot(x.data(), x.data(), n) / static_cast<float>(n);
  const float shifted = mean + eps;
  const float root = std::sqrt(shifted);
  return 1.0F / root;
}

std::vector<float> widened(const std::vector<std::uint16_t>& x) {
  std::vector<float> y;
  for (const auto b : x) y.push_back(from_bf16(b));
  return y;
}

}  // namespace

TEST_CASE("RMS norm by hand") {
  on_every_isa([] {
    // Mean square 4, eps 0: factor 1/2.
    const std::vector<std::uint16_t> x(512, literal_bf16(-2.0F));
    const std::vector<std::uint16_t> w(512, literal_bf16(3.0F));
    std::vector<std::uint16_t> y(512);
    rms_norm(x.data(), 512, w.data(), 0.0F, NormWeight::then_round, y.data());
    REQUIRE(y == std::vector<std::uint16_t>(512, literal_bf16(-3.0F)));
    rms_norm(x.data(), 512, nullptr, 12.0F, NormWeight::then_round, y.data());  // 1 / sqrt(16)
    REQUIRE(y == std::vector<std::uint16_t>(512, literal_bf16(-0.5F)));
    const std::vector<std::uint16_t> zero(512, 0);
    rms_norm(zero.data(), 512, nullptr, 1e-6F, NormWeight::then_round, y.data());
    REQUIRE(y == zero);
  });
}

TEST_CASE("RMS norm equals the literal rule in both orders of weight and rounding") {
  on_every_isa([] {
    Numbers numbers(21);
    int orders_differ = 0;
    for (const std::int64_t n : {1, 31, 128, 512, 1024, 1536}) {
      const std::vector<std::uint16_t> x = numbers.bf16s(n);
      const std::vector<std::uint16_t> w = numbers.bf16s(n);
      const std::vector<float> wide = widened(x);
      const float g = literal_factor(wide, 1e-6F);
      std::vector<std::uint16_t> then(x.size());
      std::vector<std::uint16_t> first(x.size());
      std::vector<float> unrounded(x.size());
      rms_norm(x.data(), n, w.data(), 1e-6F, NormWeight::then_round, then.data());
      rms_norm(x.data(), n, w.data(), 1e-6F, NormWeight::round_then, first.data());
      rms_norm(wide.data(), n, w.data(), 1e-6F, NormWeight::then_round, unrounded.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float scaled = wide[i] * g;
        const float product = scaled * from_bf16(w[i]);
        REQUIRE(bits(unrounded[i]) == bits(product));
        REQUIRE(then[i] == literal_bf16(product));
        REQUIRE(first[i] == literal_bf16(via_bf16(scaled) * from_bf16(w[i])));
        if (then[i] != first[i]) ++orders_differ;
      }
    }
    REQUIRE(orders_differ > 100);
  });
}

TEST_CASE("head norm has three forms") {
  on_every_isa([] {
    Numbers numbers(22);
    int differ = 0;
    for (int round = 0; round < 40; ++round) {
      const std::vector<std::uint16_t> x = numbers.bf16s(512);
      const std::vector<float> wide = widened(x);
      std::vector<std::uint16_t> f32(512);
      std::vector<std::uint16_t> bf16(512);
      std::vector<std::uint16_t> factor(512);
      head_norm(x.data(), 512, 1e-6F, HeadNorm::f32, f32.data());
      head_norm(x.data(), 512, 1e-6F, HeadNorm::bf16, bf16.data());
      head_norm(x.data(), 512, 1e-6F, HeadNorm::factor_bf16, factor.data());
      const float g = literal_factor(wide, 1e-6F);
      std::vector<float> squares;
      for (const float v : wide) squares.push_back(via_bf16(v * v));
      const float mean = via_bf16(literal_sum(squares.data(), 512) / 512.0F);
      const float shifted = via_bf16(mean + 1e-6F);
      const float root = std::sqrt(shifted);
      const float narrow_g = via_bf16(1.0F / root);
      for (int i = 0; i < 512; ++i) {
        REQUIRE(f32[i] == literal_bf16(wide[i] * g));
        REQUIRE(factor[i] == literal_bf16(wide[i] * via_bf16(g)));
        REQUIRE(bf16[i] == literal_bf16(wide[i] * narrow_g));
      }
      if (f32 != bf16 && f32 != factor) ++differ;
    }
    REQUIRE(differ > 10);
  });
}

TEST_CASE("RoPE frequencies are those of powers in long double") {
  const auto inverse_power = [](double base, int i) {
    return 1.0F /
           static_cast<float>(std::pow(static_cast<long double>(base), static_cast<long double>(i) / 32));
  };
  const Geometry geometry;
  const RopeAngleTable plain(geometry, LayerKind::swa, RopeTable::f32);
  for (int i = 0; i < 32; ++i) REQUIRE(plain.frequencies()[i] == inverse_power(10000, i));
  for (const LayerKind kind : {LayerKind::csa, LayerKind::hca}) {
    const RopeAngleTable yarn(geometry, kind, RopeTable::f32);
    for (int i = 0; i < 32; ++i) {
      const float f = inverse_power(160000, i);
      // Bounds 15 and 25: pairs up to 15 stay, pairs from 25 are divided by 16, those between are blended in
      // tenths.
      float expected = f;
      if (i >= 25) expected = f / 16.0F;
      if (i > 15 && i < 25) {
        const float u = static_cast<float>(i - 15) / 10.0F;
        const float m = 1.0F - u;
        const float stretched = (f / 16.0F) * (1.0F - m);
        const float kept = f * m;
        expected = stretched + kept;
      }
      REQUIRE(bits(yarn.frequencies()[i]) == bits(expected));
    }
  }
}

TEST_CASE("a YaRN bound beside an integer is refused") {
  Geometry geometry;
  // beta_fast such that original / (beta 2 pi) = base^(2 * 15 / 64): the bound is 15 but for rounding.
  const double pi = std::acos(-1.0);
  geometry.beta_fast = 65536 / (2 * pi * std::pow(160000.0, 30.0 / 64.0));
  REQUIRE_THROWS_AS(RopeAngleTable(geometry, LayerKind::csa, RopeTable::f32), UsageError);
  geometry.beta_fast *= 1.0001;
  REQUIRE_NOTHROW(RopeAngleTable(geometry, LayerKind::csa, RopeTable::f32));
  geometry.beta_slow = geometry.beta_fast * 2;
  REQUIRE_THROWS_AS(RopeAngleTable(geometry, LayerKind::hca, RopeTable::f32), UsageError);
  REQUIRE_NOTHROW(RopeAngleTable(geometry, LayerKind::swa, RopeTable::f32));
}

TEST_CASE("angles are rounded once before the functions") {
  const Geometry geometry;
  const RopeAngleTable table(geometry, LayerKind::swa, RopeTable::f32);
  const RopeAngleTable narrow(geometry, LayerKind::swa, RopeTable::bf16);
  for (const std::int64_t position : {0, 1, 127, 4096, 65537, 1000003}) {
    const RopeAngles a = table.at(position);
    const RopeAngles b = narrow.at(position);
    for (int i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(position) * table.frequencies()[i];
      REQUIRE(a.cos[i] == static_cast<float>(std::cos(static_cast<long double>(angle))));
      REQUIRE(a.sin[i] == static_cast<float>(std::sin(static_cast<long double>(angle))));
      REQUIRE(b.cos[i] == via_bf16(a.cos[i]));
      REQUIRE(b.sin[i] == via_bf16(a.sin[i]));
    }
  }
}

TEST_CASE("rotation fuses the own product and rounds the partner's") {
  on_every_isa([] {
    Numbers numbers(31);
    const RopeAngleTable table(Geometry{}, LayerKind::csa, RopeTable::f32);
    int fusing_matters = 0;
    for (const std::int64_t position : {0, 3, 1000, 77777}) {
      const RopeAngles angles = table.at(position);
      for (int round = 0; round < 20; ++round) {
        const std::vector<float> x = numbers.narrows(64);
        std::vector<float> forward = x;
        std::vector<float> inverse = x;
        rope_rotate(forward.data(), angles, RopeDirection::forward);
        rope_rotate(inverse.data(), angles, RopeDirection::inverse);
        std::vector<std::uint16_t> narrow;
        for (const float v : x) narrow.push_back(literal_bf16(v));
        std::vector<std::uint16_t> rotated = narrow;
        rope_rotate(rotated.data(), angles, RopeDirection::forward);
        for (int i = 0; i < 32; ++i) {
          const float e = x[2 * i];
          const float o = x[2 * i + 1];
          const float c = angles.cos[i];
          const float s = angles.sin[i];
          const float os = o * s;
          const float es = e * s;
          REQUIRE(bits(forward[2 * i]) == bits(std::fma(e, c, -os)));
          REQUIRE(bits(forward[2 * i + 1]) == bits(std::fma(o, c, es)));
          REQUIRE(bits(inverse[2 * i]) == bits(std::fma(e, c, os)));
          REQUIRE(bits(inverse[2 * i + 1]) == bits(std::fma(o, c, -es)));
          const float unfused = e * c;
          if (forward[2 * i] != unfused - os) ++fusing_matters;
          const float narrow_os = from_bf16(narrow[2 * i + 1]) * s;
          REQUIRE(rotated[2 * i] == literal_bf16(std::fma(from_bf16(narrow[2 * i]), c, -narrow_os)));
        }
      }
    }
    REQUIRE(fusing_matters > 300);
  });
}

TEST_CASE("Hadamard of unit vectors is the sign matrix") {
  on_every_isa([] {
    const std::uint16_t scale = literal_bf16(value(0x3DB504F3));
    for (int column = 0; column < 128; ++column) {
      std::vector<std::uint16_t> x(128);
      x[column] = 0x3F80;
      hadamard128(x.data(), x.data());
      for (int row = 0; row < 128; ++row) {
        const bool negative = std::popcount(static_cast<unsigned>(row & column)) % 2 == 1;
        REQUIRE(x[row] == (negative ? (scale | 0x8000U) : scale));
      }
    }
  });
}

TEST_CASE("Hadamard adds neighbours first") {
  on_every_isa([] {
    // Recursion from the widest step down: H(x)[i] of step h needs both halves of step h / 2.
    Numbers numbers(41);
    int order_matters = 0;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::uint16_t> x;
      for (int i = 0; i < 128; ++i) x.push_back(literal_bf16(numbers.wide()));
      std::vector<std::uint16_t> y(128);
      hadamard128(x.data(), y.data());
      const auto level = [&x](const auto& self, int i, int h) -> float {
        if (h == 0) return from_bf16(x[i]);
        const float low = self(self, i & ~h, h / 2);
        const float high = self(self, i | h, h / 2);
        return (i & h) == 0 ? low + high : low - high;
      };
      for (int i = 0; i < 128; i += 9) {
        REQUIRE(y[i] == literal_bf16(level(level, i, 64) * value(0x3DB504F3)));
      }
      float sum = 0;
      for (int i = 0; i < 128; ++i) sum += from_bf16(x[i]);
      if (level(level, 0, 64) != sum) ++order_matters;
    }
    REQUIRE(order_matters > 20);
  });
}
