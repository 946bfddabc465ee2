// Formats against values written by hand from their definitions, and rounding against the nearest value found
// by looking at all of them.
#include "wide/formats.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "support/catch.hpp"

namespace dsv4::wide {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The code of the nearest value by exhaustive search; of two equally near ones the even code.
template <class Value>
unsigned nearest_by_search(double magnitude, unsigned last, Value value) {
  unsigned best = 0;
  for (unsigned code = 1; code <= last; ++code) {
    const double distance = std::fabs(value(code) - magnitude);
    const double best_distance = std::fabs(value(best) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return best;
}

}  // namespace

TEST_CASE("e2m1 holds eight magnitudes", "[wide]") {
  constexpr std::array<double, 8> kByHand{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint8_t code = 0; code < 8; ++code) {
    REQUIRE(e2m1_value(code) == kByHand[code]);
    REQUIRE(e2m1_value(code + 8) == -kByHand[code]);
  }
  REQUIRE(std::signbit(e2m1_value(8)));
  // ties go to the even code: 0, 1, 2, 4 and 4
  REQUIRE(e2m1_code(0.25) == 0);
  REQUIRE(e2m1_code(0.75) == 2);
  REQUIRE(e2m1_code(1.25) == 2);
  REQUIRE(e2m1_code(1.75) == 4);
  REQUIRE(e2m1_code(2.5) == 4);
  REQUIRE(e2m1_code(3.5) == 6);
  REQUIRE(e2m1_code(5.0) == 6);
  REQUIRE(e2m1_code(5.0000001) == 7);
  REQUIRE(e2m1_code(1e30) == 7);
  REQUIRE(e2m1_code(-kInf) == 15);
  REQUIRE(e2m1_code(-0.0) == 8);
  REQUIRE(e2m1_code(kNaN) == 7);
}

TEST_CASE("e4m3 codes by hand", "[wide]") {
  REQUIRE(e4m3_value(0x00) == 0);
  REQUIRE(e4m3_value(0x01) == 0x1p-9);      // smallest subnormal
  REQUIRE(e4m3_value(0x07) == 7 * 0x1p-9);  // largest subnormal
  REQUIRE(e4m3_value(0x08) == 0x1p-6);      // smallest normal
  REQUIRE(e4m3_value(0x38) == 1);
  REQUIRE(e4m3_value(0x39) == 1.125);
  REQUIRE(e4m3_value(0x7E) == 448);  // 1.75 * 2^8
  REQUIRE(std::isnan(e4m3_value(0x7F)));
  REQUIRE(std::isnan(e4m3_value(0xFF)));
  REQUIRE(e4m3_value(0xB8) == -1);
  REQUIRE(e4m3_code(1e9) == 0x7E);
  REQUIRE(e4m3_code(-kInf) == 0xFE);
  REQUIRE(e4m3_code(kNaN) == 0x7F);
  REQUIRE(e4m3_code(-0.0) == 0x80);
  REQUIRE(e4m3_code(1.0625) == 0x38);   // tie to even
  REQUIRE(e4m3_code(1.1875) == 0x3A);   // tie to even, upwards
  REQUIRE(e4m3_code(0x1p-10) == 0x00);  // tie between 0 and the smallest subnormal
  REQUIRE(e4m3_code(0x1.8p-9) == 0x02);
}

TEST_CASE("rounding to the narrow formats takes the nearest value", "[wide]") {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-12, 10);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp2(exponent(random));
    REQUIRE(e4m3_code(x) == nearest_by_search(x, 0x7E, [](unsigned code) {
              return e4m3_value(static_cast<std::uint8_t>(code));
            }));
    REQUIRE(e2m1_code(x) == nearest_by_search(x, 7, [](unsigned code) {
              return e2m1_value(static_cast<std::uint8_t>(code));
            }));
  }
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7F) != 0x7F) REQUIRE(e4m3_code(e4m3_value(static_cast<std::uint8_t>(code))) == code);
  }
}

TEST_CASE("bf16 by hand, and once from float64", "[wide]") {
  REQUIRE(bf16_value(0x3F80) == 1);
  REQUIRE(bf16_value(0xC2F7) == -123.5);  // sign, exponent 6, significand 0xF7 = 247: 247 * 2^-1
  REQUIRE(bf16_value(0x0001) == 0x1p-133);
  REQUIRE(bf16_value(0x0080) == 0x1p-126);
  REQUIRE(bf16_value(0x7F7F) == 255 * 0x1p120);
  REQUIRE(bf16_value(0xFF80) == -kInf);
  REQUIRE(std::isnan(bf16_value(0x7FC0)));

  REQUIRE(bf16_code(1 + 0x1p-8) == 0x3F80);            // tie to even
  REQUIRE(bf16_code(1 + 3 * 0x1p-8) == 0x3F82);        // tie to even, upwards
  REQUIRE(bf16_code(1 + 0x1p-8 + 0x1p-40) == 0x3F81);  // float32 in between would make this a tie
  REQUIRE(bf16_code(-(1 + 0x1p-8 + 0x1p-40)) == 0xBF81);
  REQUIRE(bf16_code(0x1p-134) == 0x0000);
  REQUIRE(bf16_code(0x1.8p-133) == 0x0002);
  REQUIRE(bf16_code(0x1.FFp-127) == 0x0080);      // the largest subnormal's neighbour is normal
  REQUIRE(bf16_code(255.5 * 0x1p120) == 0x7F80);  // tie at the top overflows to the even code
  REQUIRE(bf16_code(255.49 * 0x1p120) == 0x7F7F);
  REQUIRE(bf16_code(-kInf) == 0xFF80);
  REQUIRE(bf16_code(kNaN) == 0x7FC0);
  REQUIRE(bf16_code(-0.0) == 0x8000);
  for (unsigned code = 0; code < 65536; ++code) {
    const double value = bf16_value(static_cast<std::uint16_t>(code));
    if (!std::isnan(value)) REQUIRE(bf16_code(value) == code);
  }
}

TEST_CASE("bf16 rounding keeps to the middle between neighbours", "[wide]") {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<unsigned> codes(1, 0x7F7E);
  for (int i = 0; i < 20000; ++i) {
    const unsigned code = codes(random);
    const double below = bf16_value(static_cast<std::uint16_t>(code));
    const double above = bf16_value(static_cast<std::uint16_t>(code + 1));
    const double middle = (below + above) / 2;
    REQUIRE(round_bf16(middle) == (code % 2 == 0 ? below : above));
    REQUIRE(round_bf16(std::nextafter(middle, kInf)) == above);
    REQUIRE(round_bf16(-std::nextafter(middle, 0)) == -below);
  }
}

TEST_CASE("block scales are the power of two above the quotient", "[wide]") {
  REQUIRE(scale_exponent(448, 448) == 0);
  REQUIRE(scale_exponent(448.5, 448) == 1);
  REQUIRE(scale_exponent(896, 448) == 1);
  REQUIRE(scale_exponent(447, 448) == 0);
  REQUIRE(scale_exponent(224, 448) == -1);
  REQUIRE(scale_exponent(6, 6) == 0);
  REQUIRE(scale_exponent(0x1.8p-124, 6) == -126);
  REQUIRE(scale_exponent(1e-4, 448) == -22);  // 1e-4 / 448 = 2.23e-7, between 2^-23 and 2^-22
  REQUIRE(scale_exponent(kInf, 448) == 127);
  REQUIRE(ue8m0_value(127) == 1);
  REQUIRE(ue8m0_value(0) == 0x1p-127);
  REQUIRE(ue8m0_value(254) == 0x1p127);
  REQUIRE(std::isnan(ue8m0_value(255)));
}

}  // namespace dsv4::wide
