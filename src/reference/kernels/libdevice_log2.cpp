#include "reference/kernels/libdevice_log2.hpp"

#include <array>
#include <cstdint>
#include <limits>

#include "arith/bits.hpp"
#include "arith/fma.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

/// Highest power first; the last is -log2(e) / 2 up to rounding.
constexpr std::array<std::uint32_t, 10> kCoefficients = {0x3DC6B27F, 0xBE2C7F30, 0x3E2FCF2A, 0xBE374E43,
                                                         0x3E520BF4, 0xBE763C8B, 0x3E93BF99, 0xBEB8AA49,
                                                         0x3EF6384A, 0xBF38AA3B};
/// Bits of a float just below sqrt(1/2): mantissas are taken from [sqrt(1/2), sqrt(2)).
constexpr std::uint32_t kSplit = 0x3F3504F3U;

}  // namespace

float libdevice_log2(float a) {
  float adjust = 0.0F;
  if (a < 0x1p-126F) {
    a = a * 0x1p23F;
    adjust = -23.0F;
  }
  const std::uint32_t bits = arith::to_bits(a);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (a == 0.0F) return -kInf;
  if (bits >= 0x7F800000U) return arith::fma(a, kInf, kInf);  // negative, infinite, NaN
  const std::uint32_t scale = (bits - kSplit) & 0xFF800000U;
  const float whole = arith::fma(static_cast<float>(static_cast<std::int32_t>(scale)), 0x1p-23F, adjust);
  const float f = arith::from_bits(bits - scale) - 1.0F;
  float p = arith::from_bits(kCoefficients[0]);
  for (std::size_t i = 1; i < kCoefficients.size(); ++i) {
    p = arith::fma(p, f, arith::from_bits(kCoefficients[i]));
  }
  p = p * f;
  p = p * f;
  return arith::fma(f, kLog2E, p) + whole;
}

}  // namespace dsv4::kernels
