/// RMS norms. Implements section 8 and the per-head forms of sections 11 and 18.
///
/// S = dot32(x, x); v = S / n + eps; g = 1 / sqrt(v), each operation rounded once; y = x * g * w, left to
/// right.
#pragma once

#include <cstdint>

#include "model/profile.hpp"

namespace dsv4::reference {

/// y [n] f32, not yet rounded to bf16. `weight` is bf16 [n] or null (weight 1). Axis norm_weight:
/// then_round: (x * g) * w; round_then: bf16(x * g) * w.
void rms_norm(const float* x, std::int64_t n, const std::uint16_t* weight, float eps, NormWeight order,
              float* out);

/// bf16 in, one rounding to bf16 at the end.
void rms_norm(const std::uint16_t* x, std::int64_t n, const std::uint16_t* weight, float eps,
              NormWeight order, std::uint16_t* out);

/// Norm of one head of q, no weight. Axis head_norm: f32: section 8; bf16: section 18 (squares, mean, sum
/// with eps and factor each rounded to bf16, squares added by sum32); factor_bf16: section 8 with g rounded
/// to bf16.
void head_norm(const std::uint16_t* x, std::int64_t n, float eps, HeadNorm mode, std::uint16_t* out);

}  // namespace dsv4::reference
