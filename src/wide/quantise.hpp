/// The block quantiser (docs/numerics.md 4) from float64, with what a comparison needs to know how near a
/// rounding boundary each code and each scale was.
#pragma once

#include <cstdint>
#include <vector>

#include "wide/row_math.hpp"

namespace dsv4::wide {

struct BlockFormat {
  bool fp4;
  int block;
  double largest() const { return fp4 ? 6.0 : 448.0; }
  /// f32 1e-4, or six times the smallest normal f32.
  double floor() const { return fp4 ? 0x1.8p-124 : 0x1.a36e2ep-14; }
  double value(std::uint8_t code) const;
  std::uint8_t code(double x) const;
};

/// Activations of FP8 linears.
inline constexpr BlockFormat kActivationFormat{false, 128};
/// Index queries and keys.
inline constexpr BlockFormat index_format(bool fp4) {
  return {fp4, fp4 ? 32 : 128};
}

struct Quantised {
  Eigen::Index blocks = 0;           ///< a row
  std::vector<std::uint8_t> codes;   ///< [rows, columns]
  std::vector<std::uint8_t> scales;  ///< [rows, blocks], ue8m0
  Balls scaled;       ///< [rows, columns] x * 2^-e before conversion; radius: of another engine's x * 2^-e
  Balls quotient;     ///< [rows, blocks] max(amax, floor) / M, whose power of two above is the scale
  Balls scale;        ///< [rows, blocks] 2^e; radius: to what another engine's may be
  Balls dequantised;  ///< [rows, columns] code * 2^e; radius: to what another engine's may be
};

/// Quantises columns 0 .. columns - 1 of x.
Quantised quantise(const Balls& x, Eigen::Index columns, BlockFormat format);

/// 2^e of a scale byte.
double scale_value(std::uint8_t scale);

}  // namespace dsv4::wide
