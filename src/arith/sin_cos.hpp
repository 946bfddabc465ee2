/// sin and cos of a float, correctly rounded for every input. docs/numerics.md section 7.
///
/// Plain double arithmetic without fused operations. Angles up to 2^20 are reduced by three parts of pi/2,
/// larger ones by the bits of 2/pi that matter; both give the reduced angle as a sum of two doubles.
///
/// A device takes a shorter way where it suffices, with fused operations and one double: where that lies so
/// close to the middle of two floats that its error could matter, the long way decides. A test over every
/// angle to 2^20 proves it against sin and cos.
#pragma once

#include "arith/fma.hpp"
#include "arith/round_odd.hpp"

namespace dsv4::arith {

namespace detail {

/// The angle modulo pi/2 as high + low, |high| <= pi/4 and a little, and the number of quarter turns taken
/// off.
struct ReducedAngle {
  double high;
  double low;
  std::uint64_t quadrant;  ///< only the low two bits matter
};

/// 0 <= x <= 2^20: the quarter turns have 20 bits, so that their products with 33-bit parts are exact.
DSV4_FN ReducedAngle reduce_small(double x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kPart1 = 0x1.921fb54400000p+0;
  constexpr double kPart2 = 0x1.0b4611a600000p-34;
  constexpr double kPart3 = 0x1.3198a2e037073p-69;
  constexpr double kShift = 0x1.8p52;
  const double shifted = x * kTwoOverPi + kShift;
  const double n = shifted - kShift;
  const double first = x - n * kPart1;  // exact
  const double second = n * kPart2;     // exact
  const double sum = first - second;
  const double shadow = sum - first;
  const double lost = (first - (sum - shadow)) - (second + shadow);
  const double tail = lost - n * kPart3;
  const double high = sum + tail;
  return {high, tail - (high - sum), to_bits64(shifted)};
}

/// a * b as an exact sum of two doubles (Veltkamp and Dekker).
DSV4_FN double product_error(double a, double b, double product) {
  constexpr double kSplit = 134217729.0;
  const double a_scaled = a * kSplit;
  const double a_high = a_scaled - (a_scaled - a);
  const double a_low = a - a_high;
  const double b_scaled = b * kSplit;
  const double b_high = b_scaled - (b_scaled - b);
  const double b_low = b - b_high;
  return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
}

/// Any finite x >= 2^20, as bits: the 128 bits of 2/pi that decide x * 2/pi modulo 4.
DSV4_FN ReducedAngle reduce_large(std::uint32_t bits) {
  // 2/pi after eight zero bits.
  constexpr std::uint64_t kBits0 = 0x00A2F9836E4E4415U;
  constexpr std::uint64_t kBits1 = 0x29FC2757D1F534DDU;
  constexpr std::uint64_t kBits2 = 0xC0DB6295993C4390U;
  constexpr std::uint64_t kBits3 = 0x41FE5163ABDEBBC5U;
  const std::uint64_t mantissa = (bits & 0x7FFFFFU) | 0x800000U;
  // x = mantissa * 2^(e - 150), e = bits >> 23. Bits of 2/pi whose product with it is a multiple of 4 vanish:
  // the first that matters has weight 2^(151 - e).
  const std::uint64_t start = (bits >> 23) - 144U;  // 3 to 110
  const std::uint64_t shift = start & 63U;
  const std::uint64_t later = 0U - (start >> 6);  // all ones from bit 64 on
  const std::uint64_t word0 = (kBits0 & ~later) | (kBits1 & later);
  const std::uint64_t word1 = (kBits1 & ~later) | (kBits2 & later);
  const std::uint64_t word2 = (kBits2 & ~later) | (kBits3 & later);
  const std::uint64_t window_high = (word0 << shift) | ((word1 >> 1) >> (63U - shift));
  const std::uint64_t window_low = (word1 << shift) | ((word2 >> 1) >> (63U - shift));

  // mantissa * window modulo 2^128, two integer bits in front.
  const std::uint64_t low_part = mantissa * (window_low & 0xFFFFFFFFU);
  const std::uint64_t middle = mantissa * (window_low >> 32) + (low_part >> 32);
  const std::uint64_t product_low = (middle << 32) | (low_part & 0xFFFFFFFFU);
  const std::uint64_t product_high = mantissa * window_high + (middle >> 32);

  // Fraction as a signed number in [-1/2, 1/2) of a quarter turn.
  const std::uint64_t fraction_high = (product_high << 2) | (product_low >> 62);
  const std::uint64_t fraction_low = product_low << 2;
  const std::uint64_t quadrant = (product_high >> 62) + (fraction_high >> 63);
  // 96 bits of it are enough: the nearest that a float comes to a multiple of pi/2 is about 2^-30. Whole
  // numbers below 2^32 become doubles as the mantissa of one whose exponent is known.
  constexpr std::uint64_t kWhole = 0x4330000000000000U;  // 2^52
  const double top =
      (from_bits64(kWhole | ((fraction_high >> 32) ^ 0x80000000U)) - (0x1p52 + 0x1p31)) * 0x1p-32;
  const double middle_part = (from_bits64(kWhole | (fraction_high & 0xFFFFFFFFU)) - 0x1p52) * 0x1p-64;
  const double bottom = (from_bits64(kWhole | (fraction_low >> 32)) - 0x1p52) * 0x1p-96;
  const double sum = top + middle_part;
  const double rest = (middle_part - (sum - top)) + bottom;
  const double turn = sum + rest;
  const double turn_low = rest - (turn - sum);

  constexpr double kHalfPi = 0x1.921fb54442d18p+0;
  constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;
  const double product = turn * kHalfPi;
  const double tail = product_error(turn, kHalfPi, product) + (turn * kHalfPiLow + turn_low * kHalfPi);
  const double high = product + tail;
  return {high, tail - (high - product), quadrant};
}

/// sin(high + low), as the odd-rounded double before the last rounding.
DSV4_FN double sin_reduced(double high, double low) {
  const double z = high * high;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  // low * cos(high), to the accuracy that low needs.
  const double tail = high * z * p + low * (1.0 - 0.5 * z);
  const double sum = high + tail;
  return round_to_odd(sum, tail - (sum - high));
}

/// cos(high + low), likewise. The square is split: that of the float nearest to `high` is exact.
DSV4_FN double cos_reduced(double high, double low) {
  const double z = high * high;
  double p = -1.0 / 6402373705728000.0;
  p = p * z + 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  const double coarse = static_cast<double>(static_cast<float>(high));
  const double fine = high - coarse;
  const double half_square = 0.5 * (coarse * coarse);
  const double rest = 0.5 * (fine * (high + coarse)) + high * low;
  const double sum = 1.0 - half_square;
  const double lost = (1.0 - sum) - half_square;
  const double tail = lost + (z * z * p - rest);
  const double result = sum + tail;
  return round_to_odd(result, tail - (result - sum));
}

/// sin for `shift` 0, cos for `shift` 1, of a non-negative angle; the sign of the result is in bit 63.
DSV4_FN double sin_quadrant(ReducedAngle angle, std::uint64_t shift) {
  const std::uint64_t quadrant = angle.quadrant + shift;
  const std::uint64_t sine = to_bits64(sin_reduced(angle.high, angle.low));
  const std::uint64_t cosine = to_bits64(cos_reduced(angle.high, angle.low));
  const std::uint64_t use_cosine = 0U - (quadrant & 1U);
  return from_bits64(((cosine & use_cosine) | (sine & ~use_cosine)) ^ ((quadrant & 2U) << 62));
}

/// The straight-line halves for |x| <= 2^20: what a vectorised loop over angles in use may call.
DSV4_FN float sin_small(float x) {
  const std::uint32_t bits = to_bits(x);
  const ReducedAngle angle = reduce_small(static_cast<double>(from_bits(bits & 0x7FFFFFFFU)));
  const float value = static_cast<float>(sin_quadrant(angle, 0U));
  return from_bits(to_bits(value) ^ (bits & 0x80000000U));
}
DSV4_FN float cos_small(float x) {
  const std::uint32_t bits = to_bits(x);
  const ReducedAngle angle = reduce_small(static_cast<double>(from_bits(bits & 0x7FFFFFFFU)));
  return static_cast<float>(sin_quadrant(angle, 1U));
}

/// The same for 2^20 <= |x|, infinities and NaN.
DSV4_FN float sin_large(float x) {
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  const std::uint32_t finite = absolute < 0x7F800000U ? absolute : 0x7F7FFFFFU;
  const float value = static_cast<float>(sin_quadrant(reduce_large(finite), 0U));
  return from_bits(absolute < 0x7F800000U ? to_bits(value) ^ (bits & 0x80000000U) : kNanBits);
}
DSV4_FN float cos_large(float x) {
  const std::uint32_t absolute = to_bits(x) & 0x7FFFFFFFU;
  const std::uint32_t finite = absolute < 0x7F800000U ? absolute : 0x7F7FFFFFU;
  const float value = static_cast<float>(sin_quadrant(reduce_large(finite), 1U));
  return from_bits(absolute < 0x7F800000U ? to_bits(value) : kNanBits);
}

inline constexpr std::uint32_t kSmallAngle = 0x49800000U;  // 2^20

}  // namespace detail

/// sin(+-0) = +-0; of an infinity or NaN it is NaN.
DSV4_FN float sin(float x) {
  if ((to_bits(x) & 0x7FFFFFFFU) <= detail::kSmallAngle) return detail::sin_small(x);
  return detail::sin_large(x);
}

/// cos(+-0) = 1; of an infinity or NaN it is NaN.
DSV4_FN float cos(float x) {
  if ((to_bits(x) & 0x7FFFFFFFU) <= detail::kSmallAngle) return detail::cos_small(x);
  return detail::cos_large(x);
}

struct SinCos {
  float sin, cos;
};

namespace detail {

/// What sin and cos of |x|, which lies `quadrant` quarter turns and a rest from 0, are by those of the rest.
DSV4_FN SinCos turned(std::uint32_t bits, double sine, double cosine, std::uint64_t quadrant) {
  const bool swapped = (quadrant & 1U) != 0U;
  const auto part = [](double magnitude, std::uint64_t turns) {
    return to_bits(static_cast<float>(from_bits64(to_bits64(magnitude) ^ ((turns & 2U) << 62))));
  };
  const std::uint32_t s = part(swapped ? cosine : sine, quadrant) ^ (bits & 0x80000000U);
  return {from_bits(s), from_bits(part(swapped ? sine : cosine, quadrant + 1U))};
}

/// A double with a relative error below 2^-49 may round to another float than the exact value: it lies within 16 units
/// of its last place of the middle between two floats.
DSV4_FN bool near_middle(double value) {
  constexpr std::uint64_t kMiddle = std::uint64_t{1} << 28;
  return (to_bits64(value) & (2U * kMiddle - 1U)) - (kMiddle - 16U) <= 32U;
}

}  // namespace detail

/// {sin(x), cos(x)} by one reduction of the angle.
DSV4_FN_APART SinCos sin_cos_by_double(float x) {
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  if (absolute >= 0x7F800000U) return {from_bits(kNanBits), from_bits(kNanBits)};
  const detail::ReducedAngle angle = absolute <= detail::kSmallAngle
                                         ? detail::reduce_small(static_cast<double>(from_bits(absolute)))
                                         : detail::reduce_large(absolute);
  return detail::turned(bits, detail::sin_reduced(angle.high, angle.low), detail::cos_reduced(angle.high, angle.low),
                        angle.quadrant);
}

/// The same by half the operations or fewer for nearly all angles up to 2^20; the others go the way above.
DSV4_FN SinCos sin_cos_by_fused_double(float x) {
  const std::uint32_t bits = to_bits(x);
  const std::uint32_t absolute = bits & 0x7FFFFFFFU;
  if (absolute > detail::kSmallAngle) return sin_cos_by_double(x);
  // Of the three parts of pi/2 the first two have 33 bits: the products are exact, and so is the first difference.
  const double wide = static_cast<double>(from_bits(absolute));
  const double shifted = fma64(wide, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = fma64(-n, 0x1.3198a2e037073p-69,
                         fma64(-n, 0x1.0b4611a600000p-34, fma64(-n, 0x1.921fb54400000p+0, wide)));
  const double z = r * r;
  double p = -1.0 / 1307674368000.0;
  p = fma64(p, z, 1.0 / 6227020800.0);
  p = fma64(p, z, -1.0 / 39916800.0);
  p = fma64(p, z, 1.0 / 362880.0);
  p = fma64(p, z, -1.0 / 5040.0);
  p = fma64(p, z, 1.0 / 120.0);
  p = fma64(p, z, -1.0 / 6.0);
  const double sine = fma64(r * z, p, r);
  double q = 1.0 / 20922789888000.0;
  q = fma64(q, z, -1.0 / 87178291200.0);
  q = fma64(q, z, 1.0 / 479001600.0);
  q = fma64(q, z, -1.0 / 3628800.0);
  q = fma64(q, z, 1.0 / 40320.0);
  q = fma64(q, z, -1.0 / 720.0);
  q = fma64(q, z, 1.0 / 24.0);
  q = fma64(q, z, -1.0 / 2.0);
  const double cosine = fma64(q, z, 1.0);
  if (detail::near_middle(sine) || detail::near_middle(cosine)) return sin_cos_by_double(x);
  return detail::turned(bits, sine, cosine, to_bits64(shifted));
}

DSV4_FN SinCos sin_cos(float x) {
#if defined(__CUDA_ARCH__)
  return sin_cos_by_fused_double(x);
#else
  return sin_cos_by_double(x);
#endif
}

}  // namespace dsv4::arith
