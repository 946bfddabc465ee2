/// One tensor-core step of Hopper, bit for bit: c + sum of a[i] * b[i] in one fused operation.
/// docs/hopper.md 4. Terms are integers on a common exponent, cut toward zero, added exactly, cut again.
///
/// A longer dot product is a chain of steps, k ascending, the result of one the accumulator of the next.
/// Host and device; any NaN is 0x7FFFFFFF.
#pragma once

#include "arith/hopper/mufu.hpp"

namespace dsv4::arith::hopper {

/// What distinguishes one tensor-core instruction from another.
struct DotRule {
  int fraction_bits;         ///< F: bits that a term keeps behind 2^E
  int output_fraction_bits;  ///< OF: bits that the result keeps behind its leading one
  int minimum_exponent;      ///< floor of the common exponent E
};
inline constexpr DotRule kBf16Rule{25, 23, -133};
inline constexpr DotRule kE4m3Rule{13, 13, -133};

/// A finite value is (-1)^negative * significand * 2^(exponent - fraction); zero has significand 0.
struct DotOperand {
  std::uint32_t significand;
  int exponent;
  bool negative;
  bool infinite;
  bool nan;
};
/// Bits behind the point of a significand.
inline constexpr int kBf16Fraction = 7;
inline constexpr int kE4m3Fraction = 3;
inline constexpr int kF32Fraction = 23;

/// A subnormal keeps the smallest exponent of its format and has no leading one.
DSV4_FN DotOperand unpack_f32(float value) {
  const std::uint32_t bits = to_bits(value);
  const std::uint32_t field = (bits >> 23) & 0xFFU;
  const std::uint32_t mantissa = bits & 0x7FFFFFU;
  return {field == 0U ? mantissa : mantissa | 0x800000U, field == 0U ? -126 : static_cast<int>(field) - 127,
          (bits >> 31) != 0U, field == 0xFFU && mantissa == 0U, field == 0xFFU && mantissa != 0U};
}
DSV4_FN DotOperand unpack_bf16(std::uint16_t value) {
  const std::uint32_t field = (static_cast<std::uint32_t>(value) >> 7) & 0xFFU;
  const std::uint32_t mantissa = value & 0x7FU;
  return {field == 0U ? mantissa : mantissa | 0x80U, field == 0U ? -126 : static_cast<int>(field) - 127,
          (value >> 15) != 0, field == 0xFFU && mantissa == 0U, field == 0xFFU && mantissa != 0U};
}
DSV4_FN DotOperand unpack_e4m3(std::uint8_t value) {
  const std::uint32_t field = (static_cast<std::uint32_t>(value) >> 3) & 0xFU;
  const std::uint32_t mantissa = value & 0x7U;
  return {field == 0U ? mantissa : mantissa | 0x8U, field == 0U ? -6 : static_cast<int>(field) - 7,
          (value >> 7) != 0, false, (value & 0x7FU) == 0x7FU};
}

/// A product of two operands, or the accumulator: significand * 2^(exponent - fraction).
struct DotTerm {
  std::uint32_t significand;
  int exponent;
  bool negative;
};

/// magnitude * 2^scale moved to `scale` zero bits, cut toward zero.
DSV4_FN std::uint64_t shift_and_cut(std::uint64_t magnitude, int left) {
  if (left >= 0) return magnitude << left;
  return left <= -64 ? 0U : magnitude >> -left;
}

/// sum * 2^(exponent - fraction_bits), normalised and cut toward zero to OF bits behind its leading one; the
/// quantum is at least 2^(-126 - OF). A zero is +0, too large a value is infinity.
DSV4_FN float round_dot(std::int64_t sum, int exponent, const DotRule& rule) {
  if (sum == 0) return 0.0F;
  const std::uint32_t sign = sum < 0 ? 0x80000000U : 0U;
  const std::uint64_t magnitude =
      sum < 0 ? 0U - static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
#if defined(__CUDA_ARCH__)
  const int top = 63 - __clzll(static_cast<long long>(magnitude));
#else
  const int top = 63 - __builtin_clzll(magnitude);
#endif
  const int leading = exponent - rule.fraction_bits + top;  // unbiased exponent of the leading one
  const int quantum = (leading < -126 ? -126 : leading) - rule.output_fraction_bits;
  const std::uint64_t cut = shift_and_cut(magnitude, exponent - rule.fraction_bits - quantum);
  if (cut == 0U) return 0.0F;  // of either sign
  if (leading > 127) return from_bits(sign | kInfinity);
  // cut has OF + 1 bits, fewer below 2^-126: the float's 23 bits are its own.
  const std::uint32_t wide = static_cast<std::uint32_t>(cut) << (kF32Fraction - rule.output_fraction_bits);
  if (leading < -126) return from_bits(sign | wide);
  return from_bits(sign | static_cast<std::uint32_t>(leading + 127) << 23 | (wide & 0x7FFFFFU));
}

/// The step over unpacked operands. `fraction`: bits behind the point of an operand's significand.
template <int kCount>
DSV4_FN float dot_accumulate(const DotOperand (&a)[kCount], const DotOperand (&b)[kCount], int fraction,
                             float c, const DotRule& rule) {
  const DotOperand carried = unpack_f32(c);
  bool nan = carried.nan;
  bool plus = carried.infinite && !carried.negative;
  bool minus = carried.infinite && carried.negative;
  int exponent = rule.minimum_exponent;
  if (carried.significand != 0U && carried.exponent > exponent) exponent = carried.exponent;
  for (int i = 0; i < kCount; ++i) {
    const bool infinite = a[i].infinite || b[i].infinite;
    const bool zero = a[i].significand == 0U || b[i].significand == 0U;
    nan = nan || a[i].nan || b[i].nan || (infinite && zero);
    const bool negative = a[i].negative != b[i].negative;
    plus = plus || (infinite && !negative);
    minus = minus || (infinite && negative);
    const int e = a[i].exponent + b[i].exponent;
    if (!zero && e > exponent) exponent = e;
  }
  if (nan || (plus && minus)) return from_bits(kHardwareNan);
  if (plus || minus) return from_bits((minus ? 0x80000000U : 0U) | kInfinity);

  const auto aligned = [&](std::uint32_t significand, int e, int behind, bool negative) {
    const auto cut =
        static_cast<std::int64_t>(shift_and_cut(significand, e - exponent + rule.fraction_bits - behind));
    return negative ? -cut : cut;
  };
  std::int64_t sum = aligned(carried.significand, carried.exponent, kF32Fraction, carried.negative);
  for (int i = 0; i < kCount; ++i) {
    sum += aligned(a[i].significand * b[i].significand, a[i].exponent + b[i].exponent, 2 * fraction,
                   a[i].negative != b[i].negative);
  }
  return round_dot(sum, exponent, rule);
}

/// wgmma m64nNk16 bf16 (and, with its own rule, mma.sync m16n8k16): K = 16.
DSV4_FN float dot_accumulate_bf16(const std::uint16_t* a, const std::uint16_t* b, float c,
                                  const DotRule& rule = kBf16Rule) {
  DotOperand x[16];
  DotOperand y[16];
  for (int i = 0; i < 16; ++i) {
    x[i] = unpack_bf16(a[i]);
    y[i] = unpack_bf16(b[i]);
  }
  return dot_accumulate(x, y, kBf16Fraction, c, rule);
}

/// wgmma m64nNk32 e4m3: K = 32.
DSV4_FN float dot_accumulate_e4m3(const std::uint8_t* a, const std::uint8_t* b, float c,
                                  const DotRule& rule = kE4m3Rule) {
  DotOperand x[32];
  DotOperand y[32];
  for (int i = 0; i < 32; ++i) {
    x[i] = unpack_e4m3(a[i]);
    y[i] = unpack_e4m3(b[i]);
  }
  return dot_accumulate(x, y, kE4m3Fraction, c, rule);
}

/// The operand as fp16 holds it: a subnormal e4m3 value has a leading one there.
DSV4_FN DotOperand widened_e4m3(std::uint8_t value) {
  DotOperand operand = unpack_e4m3(value);
  while (operand.significand != 0U && operand.significand < 8U) {
    operand.significand <<= 1;
    --operand.exponent;
  }
  return operand;
}

/// mma.sync m16n8k32 e4m3 on Hopper, which has no such instruction: the assembler widens to fp16 and issues
/// two steps of 16 from zero, first the k with k mod 4 in {0, 1}, then the others; c is added last, in one
/// rounding.
DSV4_FN float mma_e4m3(const std::uint8_t* a, const std::uint8_t* b, float c) {
  constexpr DotRule kRule = kBf16Rule;  // device code knows no objects outside of functions
  float sum = 0.0F;
  for (int pair = 0; pair < 4; pair += 2) {
    DotOperand x[16];
    DotOperand y[16];
    for (int i = 0; i < 16; ++i) {
      const int k = i / 2 * 4 + pair + i % 2;
      x[i] = widened_e4m3(a[k]);
      y[i] = widened_e4m3(b[k]);
    }
    sum = dot_accumulate(x, y, kE4m3Fraction, sum, kRule);
  }
  return add(c, sum);
}

}  // namespace dsv4::arith::hopper
