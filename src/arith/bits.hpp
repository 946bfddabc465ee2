/// Bit patterns of float and double. Host and device.
#pragma once

#include "arith/config.hpp"

namespace dsv4::arith {

DSV4_FN constexpr float from_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
DSV4_FN constexpr std::uint32_t to_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
DSV4_FN constexpr double from_bits64(std::uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}
DSV4_FN constexpr std::uint64_t to_bits64(double value) {
  return __builtin_bit_cast(std::uint64_t, value);
}

/// The one NaN that rules and digests know (docs/numerics.md section 1).
inline constexpr std::uint32_t kNanBits = 0x7FC00000U;

/// NaN test on the bits: independent of compiler flags.
DSV4_FN constexpr bool is_nan_bits(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

}  // namespace dsv4::arith
