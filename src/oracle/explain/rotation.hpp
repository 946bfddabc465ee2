/// Readings of a rotation (docs/numerics.md 9): where a stage publishes what it rotates, the rotation is done
/// again in the ways in which it is got wrong, and the results are held against the foreign tensor.
#pragma once

#include <vector>

#include "compare/readings.hpp"
#include "model/observation.hpp"

namespace dsv4::oracle::explain {

/// Of q.up/q, kv.window/kv and output.project/o_rot; `reference` is the reference's step. Empty for other
/// tensors, and where the right rotation does not give the reference's bits (a profile that rotates
/// otherwise).
std::vector<compare::Reading> rotation_readings(const RunConfig& config, const StepObservation& reference,
                                                int layer, TensorId id, const Tensor& subject,
                                                double least = 0.9);

}  // namespace dsv4::oracle::explain
