/// Faults of indexer.select, and two ways in which a selection may legally be another one.
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// A top-k by radix buckets whose buffer for the candidates of the threshold bucket holds `capacity`: later
/// candidates are dropped.
void selection_drops_candidates(FaultyEngine& subject, const Parameters& parameters);
/// The selected indices in descending order (allowed).
void selection_in_another_order(FaultyEngine& subject, const Parameters& parameters);
/// Inside an exact tie at the cut, the last entries instead of the first (allowed).
void selection_other_tie(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
