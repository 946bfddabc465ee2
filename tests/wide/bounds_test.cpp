// The bounds against float32 evaluations in the order that the definitions give, done here as literal loops.
#include "wide/bounds.hpp"

#include <cmath>
#include <random>
#include <vector>

#include "model/inputs.hpp"
#include "support/catch.hpp"
#include "wide/formats.hpp"
#include "wide/product.hpp"
#include "wide/row_math.hpp"

namespace dsv4::wide {
namespace {

/// docs/numerics.md 6 with s = 1: folds of 128, then a fold of the blocks.
float blocked_product(const std::vector<float>& x, const std::vector<float>& w) {
  float out = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += 128) {
    float block = 0;
    for (std::size_t i = begin; i < std::min(x.size(), begin + 128); ++i) block = std::fma(x[i], w[i], block);
    out = std::fma(1.0F, block, out);
  }
  return out;
}

/// docs/numerics.md 5.
float dot32(const std::vector<float>& x, const std::vector<float>& y) {
  float lanes[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 32] = std::fma(x[i], y[i], lanes[i % 32]);
  for (int s = 16; s > 0; s /= 2) {
    for (int l = 0; l < s; ++l) lanes[l] += lanes[l + s];
  }
  return lanes[0];
}

/// A bf16 weight matrix of one output.
Matrix one_output(const std::vector<float>& w) {
  Matrix matrix;
  matrix.rows = 1;
  matrix.columns = std::ssize(w);
  for (const float value : w) matrix.bf16.push_back(bf16_code(value));
  return matrix;
}

Balls row_of(const std::vector<float>& x) {
  Values values(1, std::ssize(x));
  for (std::size_t i = 0; i < x.size(); ++i) values(0, static_cast<Eigen::Index>(i)) = x[i];
  return Balls(values);
}

std::vector<float> bf16_noise(std::size_t n, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(round_bf16(normal(random)));
  return x;
}

}  // namespace

TEST_CASE("counts of roundings by hand", "[wide]") {
  const std::vector<double> lanes = lane_counts(64);
  REQUIRE(lanes[0] == 2 + 5);
  REQUIRE(lanes[31] == 2 + 5);
  REQUIRE(lanes[32] == 1 + 5);
  REQUIRE(lane_roundings(4) == 6);
  REQUIRE(lane_roundings(33) == 7);
  REQUIRE(roundings(1) >= 0x1p-24);
  REQUIRE(roundings(100) >= std::pow(1 + 0x1p-24, 100) - 1);
}

TEST_CASE("balls hold float32 results", "[wide]") {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-4, 4);
  for (int i = 0; i < 20000; ++i) {
    const float a = uniform(random);
    const float b = uniform(random);
    const float c = uniform(random) + 6;
    const float result = (a * b + c) / c - a;
    const Ball ball =
        stepped(stepped(stepped(stepped(Ball{a, 0} * Ball{b, 0}) + Ball{c, 0}) / Ball{c, 0}) - Ball{a, 0});
    REQUIRE(std::fabs(result - ball.value) <= ball.radius);
    REQUIRE(ball.radius < 1e-5);
    const Ball root = stepped(square_root(stepped(Ball{c, 0} * Ball{c, 0})));
    REQUIRE(std::fabs(std::sqrt(c * c) - root.value) <= root.radius);
    const Ball power = stepped(exponential(stepped(Ball{a, 0} - Ball{b, 0})));
    const auto rounded = static_cast<float>(std::exp(static_cast<double>(a - b)));
    REQUIRE(std::fabs(rounded - power.value) <= power.radius);
  }
}

TEST_CASE("a rounding point reaches as far as the ball does", "[wide]") {
  const double step = 0x1p-7;  // bf16 above 1
  const Ball inside = bf16_point({1 + 0.3 * step, 0.1 * step});
  REQUIRE(inside.value == 1);
  REQUIRE(inside.radius == 0);
  const Ball reaching = bf16_point({1 + 0.45 * step, 0.1 * step});
  REQUIRE(reaching.value == 1);
  REQUIRE(reaching.radius == step);
  const Ball wide_ball = bf16_point({1 + 0.45 * step, 2.1 * step});
  REQUIRE(wide_ball.value == 1);
  REQUIRE(wide_ball.radius == 3 * step);
  const Ball below = bf16_point({1 - 0.2 * step, 0.1 * step});  // the step is half as long below 1
  REQUIRE(below.value == 1);
  REQUIRE(below.radius == step / 2);
}

TEST_CASE("products stay within their bound", "[wide]") {
  std::mt19937 random(4);
  for (const std::size_t k : {128, 384, 4096}) {
    double worst = 0;
    for (int trial = 0; trial < 200; ++trial) {
      const std::vector<float> x = bf16_noise(k, random);
      const std::vector<float> w = bf16_noise(k, random);
      const Ball bound = product(row_of(x), one_output(w)).at(0, 0);
      const double error = std::fabs(blocked_product(x, w) - bound.value);
      REQUIRE(error <= bound.radius);
      worst = std::max(worst, error / bound.radius);
    }
    REQUIRE(worst > 3e-3);  // a bound far beyond what happens would guard nothing
  }
}

TEST_CASE("a product whose roundings all point one way comes near its bound", "[wide]") {
  // Every addition after the first drops the same low bits: 1 + tiny has no room for tiny, 127 times a block.
  const float tiny = 0x1p-25F;
  std::vector<float> x(128, 1);
  std::vector<float> w(128, tiny);
  w[0] = 1;
  const Ball bound = product(row_of(x), one_output(w)).at(0, 0);
  const double error = std::fabs(blocked_product(x, w) - bound.value);
  REQUIRE(error == 127 * static_cast<double>(tiny));
  REQUIRE(error <= bound.radius);
  REQUIRE(error >= bound.radius / 4);
}

TEST_CASE("norms stay within their bound", "[wide]") {
  std::mt19937 random(5);
  for (const std::size_t n : {128, 512, 1536}) {
    for (int trial = 0; trial < 100; ++trial) {
      const std::vector<float> x = bf16_noise(n, random);
      const std::vector<float> w = bf16_noise(n, random);
      const float eps = 1e-6F;
      const float mean = dot32(x, x) / static_cast<float>(n);
      const float factor = 1.0F / std::sqrt(mean + eps);
      const std::vector<double> weight(w.begin(), w.end());
      const Balls y = rms_norm(row_of(x), weight, static_cast<double>(eps));
      for (std::size_t i = 0; i < n; ++i) {
        const Ball ball = y.at(0, static_cast<Eigen::Index>(i));
        REQUIRE(std::fabs(x[i] * factor * w[i] - ball.value) <= ball.radius);
        REQUIRE(ball.radius <= 2e-6 * std::fabs(ball.value) + 1e-30);
      }
    }
  }
}

TEST_CASE("inexact inputs widen a product by what they can move it", "[wide]") {
  Balls x(Values::Constant(1, 128, 1.0));
  x.radius(0, 7) = 0.5;
  std::vector<float> w(128, 1);
  w[7] = -4;
  const Ball ball = product(x, one_output(w)).at(0, 0);
  REQUIRE(ball.value == 123);
  REQUIRE(ball.radius >= 2);
  REQUIRE(ball.radius < 2.01);
}

}  // namespace dsv4::wide
