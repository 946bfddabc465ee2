/// One element of a tensor as bits (model/element.hpp reads it): its neighbours, its distance to another, its
/// spelling. Formats are those of docs/numerics.md section 3. NaN equals NaN whatever its payload (section
/// 1).
#pragma once

#include <cstdint>
#include <string>

#include "model/element.hpp"

namespace dsv4::compare {

bool is_float(DType dtype);
bool is_nan(DType dtype, std::uint64_t bits);
bool is_finite(DType dtype, std::uint64_t bits);

/// Same bits, or both NaN.
bool same_bits(DType dtype, std::uint64_t a, std::uint64_t b);

inline constexpr std::int64_t kFar = INT64_MAX;  ///< distance from a NaN to anything else

/// Steps of the format between two elements; -0 and +0 are 0 apart. Integers: their difference.
std::int64_t ulp_distance(DType dtype, std::uint64_t a, std::uint64_t b);

/// Distance between neighbouring numbers of the format at this magnitude.
double step_at(DType dtype, double value);

/// The interval of real numbers that round to this element. Scales (`scale` true) are rounded up to a power
/// of two: (value / 2, value]. Saturating formats reach to infinity at their largest value.
struct RoundingInterval {
  double low;
  double high;
};
RoundingInterval rounding_interval(DType dtype, std::uint64_t bits, bool scale);

/// Largest finite magnitude of a narrow format (448, 6), else +inf.
double saturation(DType dtype);

/// "0x3ee00000", with the digits of the format's width.
std::string hex(DType dtype, std::uint64_t bits);

}  // namespace dsv4::compare
