/// How wide the published tensors are: the elements of one row (token, entry or state row), from the geometry
/// and the profile alone. For checks of files and for estimates; engines have shapes of their own.
#pragma once

#include <cstdint>
#include <optional>

#include "model/step_plan.hpp"

namespace dsv4 {

/// Elements of one row of a tensor; empty where the step decides (scores, selections and lists).
std::optional<std::int64_t> row_width(const RunConfig& config, LayerKind kind, TensorId id);

}  // namespace dsv4
