/// Compares what outlives a step: digests of live rows, snapshots of memory, and the lists of written rows.
#pragma once

#include "compare/layer_comparer.hpp"

namespace dsv4::compare {

/// Appends comparisons of layer `layer` and brings `caches` to their status after the step. `rows` knows what
/// the step wrote.
void compare_state(const LayerComparer::Context& context, int layer, const LayerComparer& rows,
                   CacheStatus& caches, StepComparison& out);

}  // namespace dsv4::compare
