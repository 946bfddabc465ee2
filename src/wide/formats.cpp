#include "wide/formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace dsv4::wide {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// Value of a code with a sign bit, `exponent_bits` and `mantissa_bits`, subnormals included, no specials.
double ieee_like(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
  const unsigned mantissa = code & ((1U << mantissa_bits) - 1U);
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1U << exponent_bits) - 1U));
  const bool negative = (code >> (exponent_bits + mantissa_bits) & 1U) != 0;
  const double magnitude = exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits)
                                         : std::ldexp(static_cast<double>(mantissa + (1U << mantissa_bits)),
                                                      exponent - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

std::vector<double> bf16_table() {
  std::vector<double> table(65536);
  for (unsigned code = 0; code < 65536; ++code) {
    table[code] = ieee_like(code, 8, 7, 127);
    if ((code >> 7 & 0xFFU) == 0xFF)
      table[code] = (code & 0x7FU) != 0 ? kNaN : (code >> 15 != 0 ? -kInf : kInf);
  }
  return table;
}

std::array<double, 256> e4m3_table() {
  std::array<double, 256> table{};
  for (unsigned code = 0; code < 256; ++code)
    table[code] = (code & 0x7FU) == 0x7F ? kNaN : ieee_like(code, 4, 3, 7);
  return table;
}

std::array<double, 16> e2m1_table() {
  std::array<double, 16> table{};
  for (unsigned code = 0; code < 16; ++code) table[code] = ieee_like(code, 2, 1, 1);
  return table;
}

/// The code in 0..count-1 whose value is nearest to `magnitude`, ties to the even code; values ascend with
/// codes.
template <class Table>
unsigned nearest_code(const Table& table, unsigned count, double magnitude) {
  const auto end = table.begin() + count;
  const auto above = std::lower_bound(table.begin(), end, magnitude);
  if (above == end) return count - 1;
  const auto code = static_cast<unsigned>(above - table.begin());
  if (code == 0 || *above == magnitude) return code;
  const double up = *above - magnitude;
  const double down = magnitude - table[code - 1];
  if (up != down) return up < down ? code : code - 1;
  return code % 2 == 0 ? code : code - 1;
}

const std::vector<double> kBf16 = bf16_table();
const std::array<double, 256> kE4m3 = e4m3_table();
const std::array<double, 16> kE2m1 = e2m1_table();

/// floor(log2 |x|) of a normal double.
int exponent_of(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7FFU) - 1023;
}

}  // namespace

double power_of_two(int e) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

double round_to_grid(double x, int precision, int min_exponent) {
  if (!std::isfinite(x)) return x;
  const int quantum = std::max(exponent_of(x), min_exponent) - (precision - 1);
  // Scaling by a power of two is exact here, and nearbyint rounds ties to even; x in float64's subnormal
  // range is far below every grid in use.
  return std::copysign(std::nearbyint(std::fabs(x) * power_of_two(-quantum)) * power_of_two(quantum), x);
}

double bf16_value(std::uint16_t code) {
  return kBf16[code];
}

double round_bf16(double x) {
  const double rounded = round_to_grid(x, 8, -126);
  return std::fabs(rounded) >= 0x1p128 ? std::copysign(kInf, rounded) : rounded;
}

std::uint16_t bf16_code(double x) {
  if (std::isnan(x)) return 0x7FC0;
  const unsigned sign = std::signbit(x) ? 0x8000U : 0U;
  const double magnitude = std::fabs(round_bf16(x));
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | 0x7F80U);
  if (magnitude < 0x1p-126)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(magnitude * 0x1p133));
  const int exponent = exponent_of(magnitude);
  const auto significand = static_cast<unsigned>(magnitude * power_of_two(7 - exponent));  // 128..255
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 127) << 7 | (significand - 128U));
}

double e4m3_value(std::uint8_t code) {
  return kE4m3[code];
}

std::uint8_t e4m3_code(double x) {
  if (std::isnan(x)) return 0x7F;
  return static_cast<std::uint8_t>((std::signbit(x) ? 0x80U : 0U) | nearest_code(kE4m3, 127, std::fabs(x)));
}

double e2m1_value(std::uint8_t code) {
  return kE2m1[code & 0xFU];
}

std::uint8_t e2m1_code(double x) {
  if (std::isnan(x)) return 0x7;
  return static_cast<std::uint8_t>((std::signbit(x) ? 0x8U : 0U) | nearest_code(kE2m1, 8, std::fabs(x)));
}

std::uint8_t e2m1_code_ties_down(double x) {
  unsigned code = 0;
  while (code < 7 && std::fabs(x) > (kE2m1[code] + kE2m1[code + 1]) / 2) ++code;
  return static_cast<std::uint8_t>(code != 0 && x < 0 ? code | 8U : code);
}

double f16_value(std::uint16_t code) {
  if ((code & 0x7C00U) == 0x7C00U) {
    return (code & 0x3FFU) != 0 ? kNaN : (code >> 15 != 0 ? -kInf : kInf);
  }
  return ieee_like(code, 5, 10, 15);
}

std::uint16_t f16_code(double x) {
  if (std::isnan(x)) return 0x7E00;
  const unsigned sign = std::signbit(x) ? 0x8000U : 0U;
  const double magnitude = std::fabs(round_to_grid(x, 11, -14));
  if (magnitude >= 0x1p16) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(magnitude * 0x1p24));
  const int exponent = exponent_of(magnitude);
  const auto significand = static_cast<unsigned>(magnitude * power_of_two(10 - exponent));  // 1024..2047
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 15) << 10 |
                                    (significand - 1024U));
}

double ue8m0_value(std::uint8_t code) {
  return code == 255 ? kNaN : power_of_two(static_cast<int>(code) - 127);
}

int scale_exponent(double amax_floored, double largest) {
  const double quotient = amax_floored / largest;
  if (std::isinf(quotient)) return 127;
  int exponent = 0;
  const double fraction =
      std::frexp(quotient, &exponent);  // quotient = fraction * 2^exponent, fraction in [1/2, 1)
  return std::min(fraction == 0.5 ? exponent - 1 : exponent, 127);
}

}  // namespace dsv4::wide
