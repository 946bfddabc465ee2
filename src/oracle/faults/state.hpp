/// Faults of compress.state and indexer.state: which rows are kept, under which bias, how exactly.
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// Of a verify step only the last `keep` rows are written.
void state_keeps_last_rows(FaultyEngine& subject, const Parameters& parameters);
/// The APE is that of the row's place in the step, not of its position.
void state_bias_from_chunk(FaultyEngine& subject, const Parameters& parameters);
/// kv and score' are rounded to bf16.
void state_in_bf16(FaultyEngine& subject, const Parameters& parameters);
/// Rows are written one slot further on.
void state_next_slot(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
