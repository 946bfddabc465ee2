// Norm, RoPE, Hadamard and quantiser against closed forms and hand calculations.
#include "wide/row_math.hpp"

#include <bit>
#include <cmath>
#include <random>

#include "model/error.hpp"
#include "support/catch.hpp"
#include "wide/quantise.hpp"

namespace dsv4::wide {
namespace {

bool near(double a, double b, double relative = 1e-14) {
  return std::fabs(a - b) <= relative * std::fabs(b);
}

Balls noise(Eigen::Index rows, Eigen::Index columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Values values(rows, columns);
  for (Eigen::Index i = 0; i < values.size(); ++i) values.data()[i] = normal(random);
  return Balls(values);
}

}  // namespace

TEST_CASE("the norm of a constant row is known", "[wide]") {
  const double eps = 0.5;
  const Balls y = rms_norm(Balls(Values::Constant(2, 512, -3.0)), std::vector<double>(512, 2.0), eps);
  for (Eigen::Index i = 0; i < 512; ++i) REQUIRE(near(y.value(1, i), -3.0 * 2.0 / std::sqrt(9.5)));
}

TEST_CASE("the bf16 head norm rounds every step", "[wide]") {
  // 1.0078125 squared is 1.0157 = 1 + 2 + ... rounded to bf16 1.015625; the mean 1.015625, 1/sqrt = 0.99228,
  // bf16 0.9921875; the product 0.99993896 is left to the caller.
  const Balls y = rms_norm(Balls(Values::Constant(1, 512, 1.0078125)), {}, 0x1.0c6f7ap-20, HeadNorm::bf16);
  REQUIRE(y.value(0, 0) == 1.0078125 * 0.9921875);
}

TEST_CASE("frequencies without YaRN are powers of the base", "[wide]") {
  const Rope rope(geometry_preset("v4-flash"), LayerKind::swa);
  REQUIRE(rope.frequencies()[0] == 1);
  REQUIRE(rope.frequencies()[8] == 0.1F);  // 10000^(-8/32)
  REQUIRE(rope.frequencies()[16] == 0.01F);
  REQUIRE(rope.frequencies()[24] == 0.001F);
}

TEST_CASE("YaRN leaves fast pairs, slows slow ones 16 times, blends between", "[wide]") {
  const Geometry geometry = geometry_preset("v4-flash");
  const Rope rope(geometry, LayerKind::csa);
  const auto plain = [](int i) { return std::pow(160000.0, -i / 32.0); };
  for (int i = 0; i < 32; ++i) {
    // low 15, high 25: weight (25 - i) / 10 on the plain frequency
    const double keep = std::min(std::max((25.0 - i) / 10, 0.0), 1.0);
    const double expected = plain(i) * keep + plain(i) / 16 * (1 - keep);
    REQUIRE(near(rope.frequencies()[static_cast<std::size_t>(i)], expected, 4e-7));
  }
  REQUIRE(rope.frequencies()[16] < static_cast<float>(plain(16)));
  REQUIRE(near(rope.frequencies()[25], plain(25) / 16, 2e-7));
  Geometry at_integer = geometry;
  // beta_fast such that the limit is exactly pair 15: original / (2 pi beta) = base^(15/32)
  at_integer.beta_fast = 65536 / (2 * std::acos(-1.0) * std::pow(160000.0, 15 / 32.0));
  REQUIRE_THROWS_AS(Rope(at_integer, LayerKind::hca), UsageError);
}

TEST_CASE("RoPE turns pairs by their angle", "[wide]") {
  const Rope rope(geometry_preset("tiny"), LayerKind::swa);
  Balls x(Values::Zero(1, 512));
  x.value(0, 448) = 1;  // pair 0, even
  x.value(0, 465) = 2;  // pair 8, odd
  x.value(0, 100) = 5;
  rotate(x, 0, 448, rope.at(3), false);
  REQUIRE(near(x.value(0, 448), std::cos(3.0)));
  REQUIRE(near(x.value(0, 449), std::sin(3.0)));
  const double angle = 3 * static_cast<double>(0.1F);  // the product is rounded to float32
  REQUIRE(near(x.value(0, 464), -2 * std::sin(static_cast<double>(static_cast<float>(angle)))));
  REQUIRE(near(x.value(0, 465), 2 * std::cos(static_cast<double>(static_cast<float>(angle)))));
  REQUIRE(x.value(0, 100) == 5);

  Balls y = noise(1, 64, 9);
  const Values before = y.value;
  rotate(y, 0, 0, rope.at(77777), false);
  REQUIRE((y.value - before).norm() > 1);
  rotate(y, 0, 0, rope.at(77777), true);
  REQUIRE((y.value - before).norm() < 1e-13);
}

TEST_CASE("the Hadamard transform has signs of common bits and is its own inverse", "[wide]") {
  for (const unsigned k : {0U, 1U, 2U, 37U, 127U}) {
    Balls x(Values::Zero(1, 128));
    x.value(0, k) = 1;
    hadamard(x, true);
    for (unsigned i = 0; i < 128; ++i) {
      const double sign = std::popcount(i & k) % 2 == 0 ? 1 : -1;
      REQUIRE(near(x.value(0, i), sign / std::sqrt(128.0)));
    }
  }
  Balls y = noise(3, 128, 10);
  const Values before = y.value;
  hadamard(y, true);
  hadamard(y, true);
  REQUIRE((y.value - before).norm() < 1e-13);
}

TEST_CASE("blocks are quantised with their own scale", "[wide]") {
  Values x = Values::Zero(1, 256);
  x(0, 0) = 448;  // block 0: scale 1
  x(0, 1) = 13;
  x(0, 2) = -0.0009765625;  // 2^-10: the tie between 0 and the smallest subnormal
  x(0, 128) = 450;          // block 1: scale 2
  x(0, 129) = 13;
  const Quantised q = quantise(Balls(x), 256, {false, 128});
  REQUIRE(q.blocks == 2);
  REQUIRE(q.scales == std::vector<std::uint8_t>{127, 128});
  REQUIRE(q.codes[0] == 0x7E);
  REQUIRE(q.dequantised.value(0, 1) == 13);
  REQUIRE(q.codes[2] == 0x80);
  REQUIRE(q.dequantised.value(0, 128) == 448);  // 225 lies between 224 and 240
  REQUIRE(q.dequantised.value(0, 129) == 13);
  REQUIRE(q.scaled.value(0, 129) == 6.5);
  REQUIRE(q.quotient.value(0, 1) == 450.0 / 448);
  REQUIRE(q.dequantised.radius.cwiseAbs().maxCoeff() == 0);
}

TEST_CASE("an empty block takes the floor", "[wide]") {
  const Quantised fp8 = quantise(Balls(Values::Zero(1, 64)), 64, {false, 64});
  REQUIRE(fp8.scales[0] == 127 - 22);
  const Quantised fp4 = quantise(Balls(Values::Zero(1, 32)), 32, {true, 32});
  REQUIRE(fp4.scales[0] == 1);
}

TEST_CASE("a value that reaches a boundary may give another code", "[wide]") {
  Balls x(Values::Zero(1, 64));
  x.value(0, 0) = 448;
  x.value(0, 1) = 1.0624;  // just below the tie of 1 and 1.125
  x.radius(0, 1) = 0.0002;
  x.value(0, 2) = 1.03;
  x.radius(0, 2) = 0.0002;
  const Quantised q = quantise(x, 64, {false, 64});
  REQUIRE(q.dequantised.value(0, 1) == 1);
  REQUIRE(q.dequantised.radius(0, 1) == 0.125);
  REQUIRE(q.dequantised.radius(0, 2) == 0);
  REQUIRE(q.scaled.radius(0, 1) == 0.0002);
}

TEST_CASE("a block whose largest value reaches 448 may take the next scale", "[wide]") {
  Balls x(Values::Zero(1, 64));
  x.value(0, 0) = 447;
  x.radius(0, 0) = 2;
  x.value(0, 1) = 3;
  const Quantised q = quantise(x, 64, {false, 64});
  REQUIRE(q.scales[0] == 127);
  REQUIRE(q.scale.radius(0, 0) == 1);     // 2 instead of 1
  REQUIRE(q.scaled.radius(0, 1) >= 1.5);  // 1.5 instead of 3
  REQUIRE(q.quotient.radius(0, 0) >= 2.0 / 448);
}

}  // namespace dsv4::wide
