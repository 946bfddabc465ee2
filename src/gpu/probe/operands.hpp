/// Operands that the probe draws: Philox words shaped into what stresses a rule. Host and device.
#pragma once

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/philox.hpp"

namespace dsv4::gpu::probe {

/// What the operands of a matrix instruction are like.
enum class Data : int {
  random_bits,  ///< every bit pattern, NaN, infinities and subnormals among them
  values,       ///< about normal, like activations
  wide,         ///< values, the accumulator up to 2^40 larger or smaller
  cancel,       ///< neighbouring products cancel but for a last bit
  huge,         ///< one term far above all others
  deep,         ///< subnormal operands, products around 2^-133, many zeros
  special,      ///< values with infinities, NaN, zeros and the largest numbers among them
  top,          ///< sums around the largest float
  carry,        ///< largest significands of one sign: the sum needs every bit
};
inline constexpr int kDataCount = 9;
inline constexpr const char* kDataNames[kDataCount] = {
    "random bits",        "values",          "wide accumulator",
    "cancellation",       "one huge term",   "deep subnormals and zeros",
    "infinities and NaN", "around overflow", "carries"};

struct Words {
  std::uint32_t w[4];
};
DSV4_FN Words draw(std::uint32_t i, std::uint32_t j, std::uint32_t stream) {
  Words words{{i, j, stream, 0U}};
  arith::philox_rounds(words.w[0], words.w[1], words.w[2], words.w[3], 0x70726F62U, 0x65U);
  return words;
}

/// A sum of four uniform numbers: about normal, deviation 0.58.
DSV4_FN float about_normal(const Words& r) {
  const auto sum =
      static_cast<int>((r.w[0] & 0xFFFFU) + (r.w[0] >> 16) + (r.w[1] & 0xFFFFU) + (r.w[1] >> 16));
  return static_cast<float>(sum - 131070) * 0x1p-16F;
}

/// How the two operand formats are built from fields.
struct Bf16Operand {
  using Code = std::uint16_t;
  static constexpr int kStep = 16;
  static constexpr std::uint32_t kSign = 0x8000U;
  static constexpr std::uint32_t kMantissa = 0x7FU;
  static constexpr int kMantissaBits = 7;
  static constexpr std::uint32_t kOne = 127U;  ///< exponent field of 1
  static constexpr std::uint32_t kDeepSpan = 67U;
  static constexpr std::uint32_t kTop = 188U;  ///< the product of two is near the largest float
  DSV4_HD static Code value(float x) { return arith::f32_to_bf16(x); }
  DSV4_HD static Code special(std::uint32_t i) {
    constexpr Code kCodes[8] = {0x7F80U, 0xFF80U, 0x7FC0U, 0xFF81U, 0x0000U, 0x8000U, 0x7F7FU, 0xFF7FU};
    return kCodes[i % 8U];
  }
};
struct E4m3Operand {
  using Code = std::uint8_t;
  static constexpr int kStep = 32;
  static constexpr std::uint32_t kSign = 0x80U;
  static constexpr std::uint32_t kMantissa = 0x7U;
  static constexpr int kMantissaBits = 3;
  static constexpr std::uint32_t kOne = 7U;
  static constexpr std::uint32_t kDeepSpan = 2U;
  static constexpr std::uint32_t kTop = 13U;
  DSV4_HD static Code value(float x) { return arith::f32_to_e4m3(x * 64.0F); }
  DSV4_HD static Code special(std::uint32_t i) {
    constexpr Code kCodes[8] = {0x7FU, 0xFFU, 0x7EU, 0xFEU, 0x00U, 0x80U, 0x01U, 0x81U};
    return kCodes[i % 8U];
  }
};

template <class F>
DSV4_FN typename F::Code code_of(std::uint32_t random, std::uint32_t field) {
  return static_cast<typename F::Code>((random & F::kSign) | field << F::kMantissaBits |
                                       ((random >> 20) & F::kMantissa));
}

/// Element k of row `line` of the left or right operand of a tile.
template <class F>
DSV4_FN typename F::Code operand(Data data, std::uint32_t tile, std::uint32_t line, std::uint32_t k,
                                 bool right) {
  using Code = typename F::Code;
  const std::uint32_t stream = static_cast<std::uint32_t>(data) * 4U + (right ? 1U : 0U);
  const Words r = draw(tile, line << 16 | k, stream);
  constexpr bool kNarrow = F::kMantissaBits == 3;
  switch (data) {
    case Data::random_bits:
      return static_cast<Code>(r.w[0]);
    case Data::values:
    case Data::wide:
      return F::value(about_normal(r));
    case Data::cancel: {
      const Code even = F::value(about_normal(draw(tile, line << 16 | (k & ~1U), stream)));
      if (k % 2U == 0U || !right) return even;
      return static_cast<Code>(even ^ F::kSign ^ (r.w[2] & 1U));
    }
    case Data::huge: {
      const std::uint32_t place = tile * 7U % F::kStep;
      if (k % F::kStep == place) return code_of<F>(r.w[0], kNarrow ? 14U : F::kOne + 10U + r.w[1] % 8U);
      return code_of<F>(r.w[0], kNarrow ? r.w[1] % 8U : F::kOne - 7U + r.w[1] % 12U);
    }
    case Data::deep:
      if (r.w[2] % (kNarrow ? 8U : 4U) < (kNarrow ? 7U : 1U)) return static_cast<Code>(r.w[0] & F::kSign);
      return code_of<F>(r.w[0], r.w[1] % F::kDeepSpan);
    case Data::special:
      if (r.w[2] % 64U == 0U) return F::special(r.w[3]);
      return F::value(about_normal(r));
    case Data::top:
      return code_of<F>(r.w[0], F::kTop + r.w[1] % (kNarrow ? 2U : 5U));
    case Data::carry:
      return static_cast<Code>((r.w[1] % 64U == 0U ? F::kSign : 0U) | F::kOne << F::kMantissaBits |
                               (F::kMantissa - (kNarrow ? 0U : r.w[0] % 4U)));
  }
  return Code{};
}

/// The accumulator that goes in.
template <class F>
DSV4_FN float accumulator(Data data, std::uint32_t tile, std::uint32_t line, std::uint32_t column) {
  const Words r = draw(tile, line << 16 | column, static_cast<std::uint32_t>(data) * 4U + 2U);
  const auto with_field = [&](std::uint32_t field) {
    return arith::from_bits((r.w[0] & 0x807FFFFFU) | field << 23);
  };
  switch (data) {
    case Data::random_bits:
      return arith::from_bits(r.w[0]);
    case Data::values:
      return about_normal(r) * 4.0F;
    case Data::wide:
      return with_field(127U - 40U + r.w[1] % 81U);
    case Data::cancel:
      return with_field(127U - r.w[1] % 30U);
    case Data::huge:
      return with_field(100U + r.w[1] % 50U);
    case Data::deep:
      if (r.w[1] % 3U == 0U) return arith::from_bits(r.w[0] & 0x80000000U);
      return with_field(r.w[1] % 2U == 0U ? 0U : r.w[2] % 20U);
    case Data::special:
      if (r.w[2] % 16U == 0U) {
        constexpr std::uint32_t kBits[6] = {0x7F800000U, 0xFF800000U, 0x7FC00000U,
                                            0xFFABCDEFU, 0U,          0x80000000U};
        return arith::from_bits(kBits[r.w[3] % 6U]);
      }
      return about_normal(r) * 4.0F;
    case Data::top:
      return with_field(250U + r.w[1] % 5U);
    case Data::carry:
      return arith::from_bits(0x407FFFFFU - r.w[1] % 8U);
  }
  return 0.0F;
}

}  // namespace dsv4::gpu::probe
