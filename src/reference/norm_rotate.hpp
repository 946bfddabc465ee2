/// RMS norm followed by RoPE on the last 64 dims: what window rows and compressed entries share
/// (docs/numerics.md 8, 9, 11, 12.7).
#pragma once

#include <cstdint>

#include "model/profile.hpp"
#include "reference/rope.hpp"

namespace dsv4::reference {

struct NormRotate {
  const std::uint16_t* weight = nullptr;  ///< bf16 [n] or null
  float eps = 0;
  NormWeight order = NormWeight::then_round;
  RopeInput rope_input = RopeInput::bf16;
};

/// x [n] f32, n <= 512 -> out [n] bf16: the norm in f32, bf16, RoPE, bf16; with rope_input f32 the middle
/// rounding is left out. `normed` [n] bf16 receives the rounded norm unless it is null.
void norm_rotate(const NormRotate& how, const float* x, std::int64_t n, const RopeAngles& angles,
                 std::uint16_t* normed, std::uint16_t* out);

/// The same without any rounding to bf16 (axes kv_row, index_row): `normed` [n] f32 may be null, `out` [n] f32.
void norm_rotate(const NormRotate& how, const float* x, std::int64_t n, const RopeAngles& angles,
                 float* normed, float* out);

}  // namespace dsv4::reference
