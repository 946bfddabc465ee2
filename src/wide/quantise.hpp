/// The block quantiser (docs/numerics.md 4) from float64, with what a comparison needs to know how near a
/// rounding boundary each code and each scale was.
#pragma once

#include <cstdint>
#include <vector>

#include "model/profile.hpp"
#include "wide/row_math.hpp"

namespace dsv4::wide {

struct BlockFormat {
  bool fp4;
  int block;
  double least = 0;        ///< floor of amax where it is not the format's
  bool f32_scale = false;  ///< the scale is the quotient in float32, not a power of two (section 17.6)
  bool ties_down = false;  ///< e2m1 ties take the smaller magnitude and zero has no sign (section 17.7)
  double largest() const { return fp4 ? 6.0 : 448.0; }
  /// f32 1e-4, or six times the smallest normal f32.
  double floor() const { return least > 0 ? least : fp4 ? 0x1.8p-124 : kFloorE4m3; }
  static constexpr double kFloorE4m3 = 0x1.a36e2ep-14;
  double value(std::uint8_t code) const;
  std::uint8_t code(double x) const;
};

/// Activations of FP8 linears.
inline constexpr BlockFormat kActivationFormat{false, 128};
/// Index queries and keys, and the nope part of KV rows, under a profile.
BlockFormat index_format(const Profile& profile);
BlockFormat kv_format(const Profile& profile);

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
