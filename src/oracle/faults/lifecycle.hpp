/// Faults of events: commits, releases, restores, padding. They act on the plan that the engine is given, or
/// on memory when a step is over.
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// After a verify step the rejected rows lie where a ring without draft rows would have put them.
void rollback_leaves_rows(FaultyEngine& subject, const Parameters& parameters);
/// Online state: the bank behind the last row is committed, accepted or not.
void rollback_commits_last_bank(FaultyEngine& subject, const Parameters& parameters);
/// Padding rows are written to slot 0 of the null page.
void padding_writes_slot_zero(FaultyEngine& subject, const Parameters& parameters);
/// In step `step` the page with the oldest live window row is freed and overwritten.
void page_freed_early(FaultyEngine& subject, const Parameters& parameters);
/// A restored request keeps the block table of its first life.
void stale_block_table(FaultyEngine& subject, const Parameters& parameters);
/// A restore step computes window rows again that it could keep (allowed).
void restore_recomputes_window(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
