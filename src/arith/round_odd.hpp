/// Rounding to odd: lets a value known as an unevaluated sum of two doubles be rounded to float just once.
#pragma once

#include "arith/bits.hpp"

namespace dsv4::arith {

/// `high` = rn(high + low) and |low| at most half a unit in the last place of `high`. Returns the neighbour
/// of high + low whose last bit is odd, or `high` where low is 0 (or not a number): a later rounding to
/// float, subnormals included, then gives what one rounding of high + low would give.
DSV4_FN double round_to_odd(double high, double low) {
  const std::uint64_t bits = to_bits64(high);
  const std::uint64_t even = ~bits & 1U;
  const std::uint64_t opposite = (bits ^ to_bits64(low)) >> 63;
  // Of an even `high`: one step away from zero or, modulo 2^64, one towards it. Arithmetic instead of
  // conditions on bits, which compilers do not vectorise.
  const std::uint64_t step = even - 2U * (even & opposite);
  return from_bits64(bits + (((low < 0.0) | (low > 0.0)) ? step : 0U));
}

}  // namespace dsv4::arith
