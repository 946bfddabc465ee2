/// Top-k selection with a total order. Implements sections 2 and 13.
#pragma once

#include <cstdint>
#include <span>

#include "model/profile.hpp"

namespace dsv4::reference {

/// Writes the out.size() first entries of `scores` in selection order: numbers by value (-0 = +0), then -inf,
/// then NaN; equal: lower index first. Axis select_order: written ascending by index, or in selection order.
/// The rest of `out` is -1. Returns how many were written: min(out.size(), scores.size()).
int select_top(std::span<const float> scores, SelectOrder order, std::span<std::int32_t> out);

}  // namespace dsv4::reference
