/// Number formats of the wide engine, built from their definitions alone (docs/numerics.md 3 and 4): tables
/// of values, and one rounding from float64 straight to the format. Nothing here is shared with src/arith.
///
/// Rounding is to nearest, ties to the even code. Codes that hold no number decode to NaN.
#pragma once

#include <cstdint>

namespace dsv4::wide {

/// |x| rounded onto the grid of floating-point numbers with `precision` significant bits and smallest normal
/// exponent `min_exponent` (subnormals included, no upper limit), sign kept. NaN and infinities pass through.
double round_to_grid(double x, int precision, int min_exponent);

double bf16_value(std::uint16_t code);
/// Overflow to infinity; NaN becomes 0x7FC0.
std::uint16_t bf16_code(double x);
double round_bf16(double x);

double e4m3_value(std::uint8_t code);
/// Clamps to +-448; NaN becomes 0x7F.
std::uint8_t e4m3_code(double x);

/// Code 7 and 15 read as +-6: the format has no NaN.
double e2m1_value(std::uint8_t code);
/// Saturates at +-6; NaN becomes 0x7.
std::uint8_t e2m1_code(double x);

/// Counts the thresholds 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5 below |x|; zero has no sign.
std::uint8_t e2m1_code_ties_down(double x);

/// IEEE half precision: overflow to infinity; NaN becomes 0x7E00.
double f16_value(std::uint16_t code);
std::uint16_t f16_code(double x);

/// 2^(code - 127); 255 is NaN.
double ue8m0_value(std::uint8_t code);

/// The smallest e with amax_floored / largest <= 2^e, at most 127: the exponent of a block scale (section 4).
int scale_exponent(double amax_floored, double largest);

/// 2^e for -1022 <= e <= 1023.
double power_of_two(int e);

}  // namespace dsv4::wide
