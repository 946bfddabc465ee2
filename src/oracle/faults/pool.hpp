/// Faults of compress.pool and indexer.pool: which rows and columns enter a window, and when it closes.
#pragma once

#include "oracle/faults/compressor_form.hpp"

namespace dsv4::oracle::faults {

/// What is wrong with a window (docs/numerics.md 12.4).
struct PoolChange {
  bool halves_swapped = false;      ///< older rows by their second half of columns, newer ones by their first
  bool no_previous_group = false;   ///< in a decode step the older half is left out
  bool empty_group_counts = false;  ///< the absent group of entry 0 enters with score 0
};
/// Pools the windows of a step again, with a change, over what the stage published.
void repool(FaultyEngine& subject, const StageCall& call, const CompressorStages& stages,
            const PoolChange& change);

void pool_halves_swapped(FaultyEngine& subject, const Parameters& parameters);
void pool_decode_ignores_previous(FaultyEngine& subject, const Parameters& parameters);
void pool_absent_group_scores_zero(FaultyEngine& subject, const Parameters& parameters);
/// A group of 128 that closes with the last row of a request's step is finished only when the next row comes.
void pool_closes_late(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
