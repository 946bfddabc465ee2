/// How far two results of the same sum in another order lie apart: the limit of the verdict `ordering_only`.
///
/// A sum of n products in f32, whatever its order, errs by about sqrt(n) units of 2^-24 of the result's usual
/// size when roundings are independent. The limit is 16 times that, in units of the tensor's RMS (two
/// results, eight deviations each), plus one step of the tensor's own format for the last rounding. It is a
/// yardstick for naming differences, not a proof; the wide engine's bounds are proofs. Stages that add
/// nothing have no limit.
#pragma once

#include <cstdint>

#include "model/geometry.hpp"
#include "model/stage.hpp"

namespace dsv4::compare {

/// Terms of the longest sum on the way from a stage's inputs to this tensor; 0 where nothing is summed.
std::int64_t summed_terms(TensorId id, const Geometry& geometry);

/// The limit without the format's step, in units of the tensor's RMS; 0 where nothing is summed.
double ordering_limit_in_rms(std::int64_t terms);

}  // namespace dsv4::compare
