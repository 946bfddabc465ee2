// Compiled once for the baseline and, on x86-64, once for AVX2 and FMA: DSV4_PROVER names the build.
// Everything but that one entry point has internal linkage, so that no newer instruction leaks into the rest
// of the program.
#include "prover.hpp"

#include <mpfr.h>

#include "arith/exp.hpp"
#include "arith/log.hpp"
#include "arith/sin_cos.hpp"

namespace dsv4::prover {
namespace {

using arith::from_bits;
using arith::from_bits64;
using arith::is_nan_bits;
using arith::kNanBits;
using arith::to_bits;
using arith::to_bits64;

constexpr double kEnclosure = 0x1p-48;
constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr std::uint32_t kSign = 0x80000000U;
constexpr std::uint32_t kOne = 0x3F800000U;
constexpr int kBlock = 1024;  // divides 2^23: all inputs of a block have the same sign and exponent

/// Constants of the enclosures, each rounded once from MPFR.
struct Tables {
  double exp2[64];                 // 2^(j / 64)
  double ln2_64_high, ln2_64_low;  // ln(2) / 64, the first part with 32 bits
  double ln2;
  double log[256];              // log(j / 128), j = 96 .. 192
  double sine[64], cosine[64];  // of j / 64
  double half_pi;
  // 2^(e - 150) * 2/pi modulo 4, times 2^126, for the exponent field e.
  std::uint64_t turns_high[256], turns_low[256];

  Tables() {
    mpfr_set_emin(-1000);
    mpfr_set_emax(1000);
    mpfr_t a, b;
    mpfr_init2(a, 600);
    mpfr_init2(b, 600);
    for (int j = 0; j < 64; ++j) {
      mpfr_set_d(a, j / 64.0, MPFR_RNDN);
      mpfr_exp2(a, a, MPFR_RNDN);
      exp2[j] = mpfr_get_d(a, MPFR_RNDN);
    }
    mpfr_const_log2(a, MPFR_RNDN);
    ln2 = mpfr_get_d(a, MPFR_RNDN);
    mpfr_div_ui(a, a, 64, MPFR_RNDN);
    ln2_64_high = static_cast<double>(mpfr_get_flt(a, MPFR_RNDN));
    mpfr_sub_d(a, a, ln2_64_high, MPFR_RNDN);
    ln2_64_low = mpfr_get_d(a, MPFR_RNDN);
    for (int j = 96; j <= 192; ++j) {
      mpfr_set_d(a, j / 128.0, MPFR_RNDN);
      mpfr_log(a, a, MPFR_RNDN);
      log[j] = mpfr_get_d(a, MPFR_RNDN);
    }
    for (int j = 0; j < 52; ++j) {
      mpfr_set_d(b, j / 64.0, MPFR_RNDN);
      mpfr_sin(a, b, MPFR_RNDN);
      sine[j] = mpfr_get_d(a, MPFR_RNDN);
      mpfr_cos(a, b, MPFR_RNDN);
      cosine[j] = mpfr_get_d(a, MPFR_RNDN);
    }
    mpfr_const_pi(a, MPFR_RNDN);
    mpfr_div_ui(a, a, 2, MPFR_RNDN);
    half_pi = mpfr_get_d(a, MPFR_RNDN);
    mpz_t whole, part;
    mpz_init(whole);
    mpz_init(part);
    for (int e = 0; e < 256; ++e) {
      mpfr_ui_div(b, 1, a, MPFR_RNDN);
      mpfr_mul_2si(b, b, e - 150 + 126, MPFR_RNDN);
      mpfr_get_z(whole, b, MPFR_RNDD);
      mpz_tdiv_r_2exp(whole, whole, 128);
      mpz_tdiv_q_2exp(part, whole, 64);
      mpz_tdiv_r_2exp(whole, whole, 64);
      turns_high[e] = mpz_get_ui(part);
      turns_low[e] = mpz_get_ui(whole);
    }
    mpz_clear(whole);
    mpz_clear(part);
    mpfr_clear(a);
    mpfr_clear(b);
  }
};
const Tables kTables;

/// exp of a finite x within 2^-50: 2^(n/64) exp(r), |r| <= ln(2)/128. Straight-line code like all enclosures.
[[gnu::always_inline]] inline double enclose_exp(float x) {
  const double wide = static_cast<double>(x);
  const double above = wide < -105.0 ? -105.0 : wide;
  const double value = above > 89.0 ? 89.0 : above;
  const double shifted = value * (64.0 / kTables.ln2) + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double r = (value - n * kTables.ln2_64_high) - n * kTables.ln2_64_low;
  const double p = r + r * r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720)))));
  const std::uint64_t whole = to_bits64(shifted);
  const double power = from_bits64(((whole >> 6) + 1023U) << 52);
  const double root = kTables.exp2[whole & 63U];
  const double inside = (root + root * p) * power;
  // exp(89) > 4.4e38 rounds to infinity; exp(-105) < 2.6e-46, less than half the smallest float, to zero.
  const double up = wide >= 89.0 ? 1e300 : inside;
  return wide <= -105.0 ? 1e-300 : up;
}

/// log of a finite positive x within 2^-49: k ln 2 + log(c) + log(1 + t), c = j / 128 nearest to the
/// mantissa.
[[gnu::always_inline]] inline double enclose_log(float x) {
  const std::uint64_t bits = to_bits64(static_cast<double>(x));
  const std::uint64_t up = (bits >> 51) & 1U;  // mantissas from 1.5 on are halved
  const double k = from_bits64(0x4330000000000000U + (bits >> 52) + up) - (0x1p52 + 1023.0);
  const double m = from_bits64((bits & 0x000FFFFFFFFFFFFFU) | ((1023U - up) << 52));
  const double shifted = m * 128.0 + 0x1.8p52;
  const double c = (shifted - 0x1.8p52) / 128.0;
  const double t = (m - c) / c;
  const double p =
      t -
      t * t *
          (1.0 / 2 - t * (1.0 / 3 - t * (1.0 / 4 - t * (1.0 / 5 - t * (1.0 / 6 - t * (1.0 / 7 - t / 8))))));
  return k * kTables.ln2 + (kTables.log[to_bits64(shifted) & 255U] + p);
}

struct Waves {
  double sine;
  double cosine;
};

/// sin and cos of a finite x >= 0 within 2^-49. `turns` is that of the exponent.
[[gnu::always_inline]] inline Waves enclose_waves(std::uint32_t bits, std::uint64_t turns_high,
                                                  std::uint64_t turns_low) {
  // The 128-bit product of mantissa and turns, by columns of 32 bits; the lowest is below what counts.
  const std::uint64_t mantissa = (bits & 0x7FFFFFU) | 0x800000U;
  const std::uint64_t column0 = (turns_low & 0xFFFFFFFFU) * mantissa;
  const std::uint64_t column1 = (turns_low >> 32) * mantissa + (column0 >> 32);
  const std::uint64_t column2 = (turns_high & 0xFFFFFFFFU) * mantissa + (column1 >> 32);
  const std::uint64_t column3 = (turns_high >> 32) * mantissa + (column2 >> 32);
  // Two bits of quadrant, then the fraction; round to the nearest quadrant.
  const std::uint64_t top = (column3 << 32) | (column2 & 0xFFFFFFFFU);
  const std::uint64_t half = (top >> 61) & 1U;
  const std::uint64_t quadrant = (top >> 62) + half;
  const std::uint64_t high = (top << 2) >> 32;
  const std::uint64_t middle = ((top << 2) & 0xFFFFFFFFU) | ((column1 & 0xFFFFFFFFU) >> 30);
  const std::uint64_t low = (column1 << 2) & 0xFFFFFFFFU;
  const double two52 = 0x1p52;
  const double turn = ((from_bits64(0x4330000000000000U + high) - two52) * 0x1p-32 -
                       (from_bits64(0x4330000000000000U + half) - two52)) +
                      ((from_bits64(0x4330000000000000U + middle) - two52) * 0x1p-64 +
                       (from_bits64(0x4330000000000000U + low) - two52) * 0x1p-96);
  const double angle = turn * kTables.half_pi;
  const std::uint64_t negative = to_bits64(angle) & 0x8000000000000000U;
  const double magnitude = from_bits64(to_bits64(angle) ^ negative);
  const double shifted = magnitude * 64.0 + 0x1.8p52;
  const double t = magnitude - (shifted - 0x1.8p52) / 64.0;
  const double z = t * t;
  const double sin_t = t - t * z * (1.0 / 6 - z * (1.0 / 120 - z / 5040));
  const double cos_less_1 = -z * (1.0 / 2 - z * (1.0 / 24 - z / 720));
  const double s = kTables.sine[to_bits64(shifted) & 63U];
  const double c = kTables.cosine[to_bits64(shifted) & 63U];
  const std::uint64_t sine = to_bits64(s + (s * cos_less_1 + c * sin_t)) ^ negative;
  const std::uint64_t cosine = to_bits64(c + (c * cos_less_1 - s * sin_t));
  const std::uint64_t odd = 0U - (quadrant & 1U);
  return {from_bits64(((cosine & odd) | (sine & ~odd)) ^ ((quadrant & 2U) << 62)),
          from_bits64(((sine & odd) | (cosine & ~odd)) ^ (((quadrant + 1U) & 2U) << 62))};
}

/// The same below 2^-14, where the next term of the series is below 2^-60.
[[gnu::always_inline]] inline Waves enclose_small_waves(std::uint32_t bits) {
  const double value = static_cast<double>(from_bits(bits));
  const double square = value * value;
  return {value - value * square / 6, 1.0 - (square / 2 - square * square / 24)};
}
constexpr std::uint32_t kSmallWave = (127U - 14U) << 23;

template <Function kFunction>
[[gnu::always_inline]] inline float compute(float x) {
  if constexpr (kFunction == Function::exp) return arith::exp(x);
  if constexpr (kFunction == Function::log) return arith::log(x);
  if constexpr (kFunction == Function::sin) return arith::sin(x);
  if constexpr (kFunction == Function::cos) return arith::cos(x);
}

/// The results of a block. sin and cos choose between two forms by the size of the argument, which is the
/// same for a whole block but for 2^20 itself; called by that choice they vectorise.
template <Function kFunction, bool kSmall>
void compute_block(std::uint32_t first, std::uint32_t* result) {
  for (int i = 0; i < kBlock; ++i) {
    const float x = from_bits(first + static_cast<std::uint32_t>(i));
    float value = 0.0F;
    if constexpr (kFunction == Function::sin) {
      value = kSmall ? arith::detail::sin_small(x) : arith::detail::sin_large(x);
    } else if constexpr (kFunction == Function::cos) {
      value = kSmall ? arith::detail::cos_small(x) : arith::detail::cos_large(x);
    } else {
      value = compute<kFunction>(x);
    }
    const std::uint32_t bits = to_bits(value);
    result[i] = is_nan_bits(bits) ? kNanBits : bits;
  }
}

/// Correct rounding by MPFR: 24 bits and the exponents of float, subnormals by mpfr_subnormalize.
template <Function kFunction>
std::uint32_t by_mpfr(std::uint32_t input) {
  mpfr_set_emin(-148);
  mpfr_set_emax(128);
  mpfr_t value;
  mpfr_init2(value, 24);
  mpfr_set_flt(value, from_bits(input), MPFR_RNDN);
  int inexact = 0;
  if constexpr (kFunction == Function::exp) inexact = mpfr_exp(value, value, MPFR_RNDN);
  if constexpr (kFunction == Function::log) inexact = mpfr_log(value, value, MPFR_RNDN);
  if constexpr (kFunction == Function::sin) inexact = mpfr_sin(value, value, MPFR_RNDN);
  if constexpr (kFunction == Function::cos) inexact = mpfr_cos(value, value, MPFR_RNDN);
  mpfr_subnormalize(value, inexact, MPFR_RNDN);
  const std::uint32_t bits = to_bits(mpfr_get_flt(value, MPFR_RNDN));
  mpfr_clear(value);
  return is_nan_bits(bits) ? kNanBits : bits;
}

/// The inputs whose result is a matter of definition: true, and the result in `bits`.
template <Function kFunction>
bool special(std::uint32_t input, std::uint32_t& bits) {
  const std::uint32_t magnitude = input & ~kSign;
  const bool negative = (input & kSign) != 0U;
  bits = kNanBits;
  if (magnitude > kInfinity) return true;
  if constexpr (kFunction == Function::exp) {
    if (magnitude == kInfinity) bits = negative ? 0U : kInfinity;
    return magnitude == kInfinity;
  }
  if constexpr (kFunction == Function::log) {
    if (magnitude == 0U) bits = kSign | kInfinity;
    if (input == kInfinity) bits = kInfinity;
    return magnitude == 0U || negative || magnitude == kInfinity;
  }
  return magnitude == kInfinity;
}

template <Function kFunction>
double enclose(std::uint32_t input) {
  if constexpr (kFunction == Function::exp) return enclose_exp(from_bits(input));
  if constexpr (kFunction == Function::log) return enclose_log(from_bits(input));
  const std::uint32_t bits = input & ~kSign;
  const std::uint32_t exponent = bits >> 23;
  const Waves waves = bits < kSmallWave
                          ? enclose_small_waves(bits)
                          : enclose_waves(bits, kTables.turns_high[exponent], kTables.turns_low[exponent]);
  if constexpr (kFunction == Function::sin) return (input & kSign) != 0U ? -waves.sine : waves.sine;
  if constexpr (kFunction == Function::cos) return waves.cosine;
}

/// Whether no input of a block is left open and every result is the proven one. False says nothing.
template <Function kFunction>
bool block_holds(std::uint32_t first, const std::uint32_t* result) {
  const std::uint32_t magnitude = first & ~kSign;
  if (magnitude >= kInfinity || magnitude == 0U) return false;
  std::uint32_t differences = 0;
  if (kFunction == Function::log && (first & kSign) != 0U) {
    for (int i = 0; i < kBlock; ++i) differences |= result[i] ^ kNanBits;
    return differences == 0U;
  }
  double value[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const std::uint32_t input = first + static_cast<std::uint32_t>(i);
    if constexpr (kFunction == Function::exp) value[i] = enclose_exp(from_bits(input));
    if constexpr (kFunction == Function::log) value[i] = enclose_log(from_bits(input));
  }
  if constexpr (kFunction == Function::sin || kFunction == Function::cos) {
    const std::uint64_t turns_high = kTables.turns_high[magnitude >> 23];
    const std::uint64_t turns_low = kTables.turns_low[magnitude >> 23];
    if (magnitude < kSmallWave) {
      for (int i = 0; i < kBlock; ++i) {
        const Waves waves = enclose_small_waves(magnitude + static_cast<std::uint32_t>(i));
        value[i] = kFunction == Function::sin ? waves.sine : waves.cosine;
      }
    } else {
      for (int i = 0; i < kBlock; ++i) {
        const Waves waves = enclose_waves(magnitude + static_cast<std::uint32_t>(i), turns_high, turns_low);
        value[i] = kFunction == Function::sin ? waves.sine : waves.cosine;
      }
    }
  }
  const std::uint32_t flip = kFunction == Function::sin ? first & kSign : 0U;
  for (int i = 0; i < kBlock; ++i) {
    const std::uint32_t one = to_bits(static_cast<float>(value[i] - value[i] * kEnclosure));
    const std::uint32_t other = to_bits(static_cast<float>(value[i] + value[i] * kEnclosure));
    differences |= (one ^ other) | (one ^ flip ^ result[i]);
  }
  return differences == 0U;
}

template <Function kFunction>
std::uint32_t expect(std::uint32_t input, std::uint64_t& mpfr_calls) {
  std::uint32_t bits = 0;
  if (special<kFunction>(input, bits)) return bits;
  const double value = enclose<kFunction>(input);
  const std::uint32_t one = to_bits(static_cast<float>(value - value * kEnclosure));
  const std::uint32_t other = to_bits(static_cast<float>(value + value * kEnclosure));
  if (one == other) return one;
  ++mpfr_calls;
  return by_mpfr<kFunction>(input);
}

template <Function kFunction>
Verdict prove_all() {
  std::uint64_t wrong = 0;
  std::uint64_t calls = 0;
  std::uint64_t inputs = 0;
  std::uint64_t finite = 0;
  std::uint64_t trivial = 0;
  std::uint32_t first_wrong = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : wrong, calls, inputs, finite, trivial) \
    reduction(max : first_wrong)
  for (std::int64_t block = 0; block < (std::int64_t{1} << 32) / kBlock; ++block) {
    const auto first = static_cast<std::uint32_t>(block * kBlock);
    std::uint32_t result[kBlock];
    std::uint32_t block_finite = 0;
    std::uint32_t block_trivial = 0;
    if ((first & ~kSign) < arith::detail::kSmallAngle) {
      compute_block<kFunction, true>(first, result);
    } else {
      compute_block<kFunction, false>(first, result);
    }
    for (int i = 0; i < kBlock; ++i) {
      const std::uint32_t input = first + static_cast<std::uint32_t>(i);
      block_finite += ((result[i] & ~kSign) - 1U < kInfinity - 1U) ? 1U : 0U;
      block_trivial +=
          result[i] == (kFunction == Function::sin && (input << 1) != 0U ? input : kOne) ? 1U : 0U;
    }
    inputs += kBlock;
    finite += block_finite;
    trivial += block_trivial;
    if (block_holds<kFunction>(first, result)) continue;
    for (int i = 0; i < kBlock; ++i) {
      const std::uint32_t input = first + static_cast<std::uint32_t>(i);
      if (result[i] != expect<kFunction>(input, calls)) {
        ++wrong;
        first_wrong = input;
      }
    }
  }
  return {inputs, wrong, calls, finite, trivial, first_wrong};
}

Verdict prove(Function function) {
  switch (function) {
    case Function::exp:
      return prove_all<Function::exp>();
    case Function::log:
      return prove_all<Function::log>();
    case Function::sin:
      return prove_all<Function::sin>();
    case Function::cos:
      return prove_all<Function::cos>();
  }
  return {};
}

/// same(x) for the inputs with the bits 0 to end - 1, a multiple of kBlock.
template <class Same>
Agreement compare(std::int64_t end, Same same) {
  Agreement all;
#pragma omp parallel
  {
    Agreement mine;
#pragma omp for schedule(dynamic, 64)
    for (std::int64_t block = 0; block < end / kBlock; ++block) {
      const auto first = static_cast<std::uint32_t>(block * kBlock);
      std::uint32_t difference[kBlock];
      std::uint32_t wrong = 0;
      for (int i = 0; i < kBlock; ++i) {
        difference[i] = same(from_bits(first + static_cast<std::uint32_t>(i))) ? 0U : 1U;
        wrong |= difference[i];
      }
      mine.inputs += kBlock;
      if (wrong == 0U) continue;
      for (int i = 0; i < kBlock; ++i) {
        if (difference[i] == 0U) continue;
        ++mine.wrong;
        mine.first_wrong = first + static_cast<std::uint32_t>(i);
      }
    }
#pragma omp critical
    {
      all.inputs += mine.inputs;
      all.wrong += mine.wrong;
      if (mine.wrong != 0U) all.first_wrong = mine.first_wrong;
    }
  }
  return all;
}

Agreement compare_exp() {
  return compare(std::int64_t{1} << 32, [](float x) {
    const float one = arith::exp_by_fused_double(x);
    const float other = arith::exp_by_double(x);
    // NaN payloads are free; comparing values would take +0 for -0.
    return to_bits(one) == to_bits(other) || (one != one && other != other);
  });
}

Agreement compare_sin_cos() {
  return compare(std::int64_t{arith::detail::kSmallAngle} + kBlock, [](float x) {
    const arith::SinCos one = arith::sin_cos_by_fused_double(x);
    return to_bits(one.sin) == to_bits(arith::sin(x)) && to_bits(one.cos) == to_bits(arith::cos(x));
  });
}

template <Function kFunction>
std::uint32_t expect_one(std::uint32_t input) {
  std::uint64_t calls = 0;
  return expect<kFunction>(input, calls);
}

template <Function kFunction>
std::uint32_t compute_one(std::uint32_t input) {
  const std::uint32_t bits = to_bits(compute<kFunction>(from_bits(input)));
  return is_nan_bits(bits) ? kNanBits : bits;
}

#define DSV4_BY_FUNCTION(name, callee)                         \
  std::uint32_t name(Function function, std::uint32_t input) { \
    switch (function) {                                        \
      case Function::exp:                                      \
        return callee<Function::exp>(input);                   \
      case Function::log:                                      \
        return callee<Function::log>(input);                   \
      case Function::sin:                                      \
        return callee<Function::sin>(input);                   \
      case Function::cos:                                      \
        return callee<Function::cos>(input);                   \
    }                                                          \
    return 0;                                                  \
  }
DSV4_BY_FUNCTION(expected, expect_one)
DSV4_BY_FUNCTION(expected_by_mpfr, by_mpfr)
DSV4_BY_FUNCTION(computed, compute_one)
#undef DSV4_BY_FUNCTION

#define DSV4_TEXT(name) #name
#define DSV4_NAME(name) DSV4_TEXT(name)

}  // namespace

const Prover& DSV4_PROVER() {
  static const Prover prover{DSV4_NAME(DSV4_PROVER), prove,   compare_exp, compare_sin_cos, expected,
                             expected_by_mpfr,       computed};
  return prover;
}

}  // namespace dsv4::prover
