/// Rotary position embedding of 64 interleaved dims, with YaRN. Implements section 9.
#pragma once

#include <array>
#include <cstdint>

#include "model/geometry.hpp"
#include "model/profile.hpp"

namespace dsv4::reference {

inline constexpr int kRopePairs = kRopeDim / 2;

/// cos and sin of the 32 pairs at one position.
struct RopeAngles {
  std::array<float, kRopePairs> cos;
  std::array<float, kRopePairs> sin;
};

/// Frequencies of one base. Angles are made on demand: a whole table would be large.
class RopeAngleTable {
 public:
  /// The table of a layer: rope_theta without YaRN for window-only layers, compress_rope_theta with YaRN for
  /// the others (section 20). Throws UsageError when a YaRN bound lies within 1e-6 of an integer, where the
  /// rounding of a logarithm could decide it.
  RopeAngleTable(const Geometry& geometry, LayerKind kind, RopeTable precision);

  const std::array<float, kRopePairs>& frequencies() const { return frequencies_; }

  /// cos and sin of f32(position) * f[i] (one rounding), correctly rounded; axis rope_table bf16: then to
  /// bf16.
  RopeAngles at(std::int64_t position) const;

 private:
  std::array<float, kRopePairs> frequencies_{};
  RopeTable precision_;
};

enum class RopeDirection : std::uint8_t { forward, inverse };

/// Rotates 64 values in place: pairs (2i, 2i + 1). No further rounding.
void rope_rotate(float* x, const RopeAngles& angles, RopeDirection direction);

/// The same on bf16 values, with one rounding to bf16 of each result.
void rope_rotate(std::uint16_t* x, const RopeAngles& angles, RopeDirection direction);

}  // namespace dsv4::reference
