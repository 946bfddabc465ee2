#include "math_support.hpp"
#include "reference/sums.hpp"

using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

float left_to_right(const std::vector<float>& x) {
  float sum = 0;
  for (const float v : x) sum += v;
  return sum;
}

}  // namespace

TEST_CASE("sum32 adds along lanes and then as a tree") {
  on_every_isa([] {
    REQUIRE(bits(sum32(nullptr, 0)) == 0U);
    std::vector<float> x(32);
    // Ones that meet each other first survive beside 2^24, ones that meet it one by one do not.
    x[0] = 16777216.0F;
    x[8] = x[24] = 1.0F;
    REQUIRE(sum32(x.data(), 32) == 16777218.0F);
    x[24] = 0.0F;
    x[16] = 1.0F;
    REQUIRE(sum32(x.data(), 32) == 16777216.0F);
    // Element 32 joins lane 0 before any other lane does.
    std::vector<float> y(33);
    y[0] = 1.0F;
    y[16] = 16777216.0F;
    y[32] = 1.0F;
    REQUIRE(sum32(y.data(), 33) == 16777218.0F);
    // Lanes begin at +0.
    const std::vector<float> negative_zero(40, -0.0F);
    REQUIRE(bits(sum32(negative_zero.data(), 40)) == 0U);
  });
}

TEST_CASE("dot32 fuses product and sum in its lane") {
  on_every_isa([] {
    // 4097^2 = 16785409 needs 25 bits: only a fused step keeps its last bit beside -16785408.
    std::vector<float> x(33);
    std::vector<float> y(33);
    x[0] = 1.0F;
    y[0] = -16785408.0F;
    x[32] = y[32] = 4097.0F;
    REQUIRE(dot32(x.data(), y.data(), 33) == 1.0F);
    x[32] = y[32] = 0.0F;
    x[31] = y[31] = 4097.0F;  // another lane: rounded before the two meet
    REQUIRE(dot32(x.data(), y.data(), 33) == 0.0F);
  });
}

TEST_CASE("sums of every length equal the literal rule") {
  on_every_isa([] {
    Numbers numbers(7);
    int order_matters = 0;
    for (std::int64_t n = 0; n < 260; ++n) {
      const std::vector<float> x = numbers.wides(n);
      const std::vector<float> y = numbers.wides(n);
      REQUIRE(bits(dot32(x.data(), y.data(), n)) == bits(literal_dot(x.data(), y.data(), n)));
      REQUIRE(bits(sum32(x.data(), n)) == bits(literal_sum(x.data(), n)));
      if (bits(sum32(x.data(), n)) != bits(left_to_right(x))) ++order_matters;
    }
    REQUIRE(order_matters > 150);
  });
}

TEST_CASE("sums take infinities, NaN and subnormals as IEEE does") {
  on_every_isa([] {
    std::vector<float> x(96, 1.0F);
    std::vector<float> tiny(96, value(1));  // 2^-149
    REQUIRE(dot32(tiny.data(), x.data(), 96) == 96 * value(1));
    REQUIRE(sum32(tiny.data(), 96) == 96 * value(1));
    REQUIRE(bits(dot32(tiny.data(), tiny.data(), 96)) == 0U);
    x[40] = kInf;
    REQUIRE(sum32(x.data(), 96) == kInf);
    x[41] = -kInf;
    REQUIRE(std::isnan(sum32(x.data(), 96)));
    REQUIRE(std::isnan(dot32(x.data(), x.data() + 1, 95)));
  });
}
