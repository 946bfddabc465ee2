#include "compare/element.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace dsv4::compare {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct FloatFormat {
  int bits;  ///< sign included
  int mantissa_bits;
  int min_exponent;   ///< of the smallest normal number
  std::uint64_t max;  ///< bits of the largest finite number
  bool saturates;
};

FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::float4_e2m1fn:
      return {4, 1, 0, 0x7, true};
    case DType::float8_e4m3fn:
      return {8, 3, -6, 0x7E, true};
    case DType::bfloat16:
      return {16, 7, -126, 0x7F7F, false};
    case DType::float32:
      return {32, 23, -126, 0x7F7FFFFF, false};
    case DType::float64:
      return {64, 52, -1022, 0x7FEFFFFFFFFFFFFF, false};
    default:
      throw InternalError("not a signed floating point format");
  }
}

bool is_signed_float(DType dtype) {
  return is_float(dtype) && dtype != DType::float8_e8m0fnu;
}

// Sign-magnitude bits as an ordered integer: neighbours differ by one, both zeros are 0.
std::int64_t ordered(const FloatFormat& format, std::uint64_t bits) {
  const std::uint64_t sign = std::uint64_t{1} << (format.bits - 1);
  const auto magnitude = static_cast<std::int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

}  // namespace

bool is_float(DType dtype) {
  return dtype != DType::int32 && dtype != DType::uint8;
}

bool is_nan(DType dtype, std::uint64_t bits) {
  return is_float(dtype) && std::isnan(decode(dtype, bits));
}

bool is_finite(DType dtype, std::uint64_t bits) {
  return !is_float(dtype) || std::isfinite(decode(dtype, bits));
}

bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b) {
  return a == b || (is_nan(dtype, a) && is_nan(dtype, b));
}

std::int64_t ulp_distance(DType dtype, std::uint64_t a, std::uint64_t b) {
  if (same_bits(dtype, a, b)) return 0;
  if (is_nan(dtype, a) || is_nan(dtype, b)) return kFar;
  if (!is_signed_float(dtype)) {
    const bool is_int = dtype == DType::int32;
    const std::int64_t x = is_int ? static_cast<std::int32_t>(a) : static_cast<std::int64_t>(a);
    const std::int64_t y = is_int ? static_cast<std::int32_t>(b) : static_cast<std::int64_t>(b);
    return std::abs(x - y);
  }
  const FloatFormat format = format_of(dtype);
  const std::int64_t x = ordered(format, a);
  const std::int64_t y = ordered(format, b);
  // Only float64 can overflow here: opposite signs of huge numbers.
  if ((x < 0) != (y < 0) && std::abs(x / 2 - y / 2) > kFar / 2 - 1) return kFar - 1;
  return std::abs(x - y);
}

double step_at(DType dtype, double value) {
  if (dtype == DType::float8_e8m0fnu) return value;
  if (!is_float(dtype)) return 1;
  const FloatFormat format = format_of(dtype);
  const double magnitude = std::abs(value);
  int exponent = format.min_exponent;
  if (magnitude > 0 && std::isfinite(magnitude)) exponent = std::max(exponent, std::ilogb(magnitude));
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

RoundingInterval rounding_interval(DType dtype, std::uint64_t bits, bool scale) {
  const double value = decode(dtype, bits);
  if (!std::isfinite(value)) return {value, value};
  if (scale || dtype == DType::float8_e8m0fnu) return {value / 2, value};
  if (!is_float(dtype)) return {value, value};
  const FloatFormat format = format_of(dtype);
  const std::uint64_t sign = std::uint64_t{1} << (format.bits - 1);
  const std::uint64_t magnitude = bits & (sign - 1);
  const double size = std::abs(value);
  double outer = size + step_at(dtype, size) / 2;
  if (magnitude == format.max && format.saturates) outer = kInfinity;
  if (magnitude == 0) return {-outer, outer};
  // Below a power of two the step is half as long.
  const double inner = (size + decode(dtype, magnitude - 1)) / 2;
  return value > 0 ? RoundingInterval{inner, outer} : RoundingInterval{-outer, -inner};
}

double saturation(DType dtype) {
  if (dtype == DType::float8_e4m3fn) return 448;
  if (dtype == DType::float4_e2m1fn) return 6;
  return kInfinity;
}

std::string hex(DType dtype, std::uint64_t bits) {
  const std::size_t digits = dtype == DType::float4_e2m1fn ? 1 : 2 * size_bytes(dtype);
  return fmt::format("0x{:0{}x}", bits, digits);
}

}  // namespace dsv4::compare
