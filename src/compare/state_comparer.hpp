/// Compares what outlives a step: digests of live rows, snapshots of memory, and the lists of written rows.
#pragma once

#include <optional>
#include <string_view>

#include "compare/layer_comparer.hpp"
#include "compare/packed_row.hpp"

namespace dsv4::compare {

/// Appends comparisons of layer `layer` and brings `caches` to their status after the step. `rows` knows what
/// the step wrote.
void compare_state(const LayerComparer::Context& context, int layer, const LayerComparer& rows,
                   CacheStatus& caches, StepComparison& out);

/// Where the bytes of a snapshot's pages stand; empty for plain rows and state.
std::optional<PackedRow> snapshot_layout(const RunConfig& config, int layer, std::string_view tensor,
                                         std::int64_t row_bytes);

}  // namespace dsv4::compare
