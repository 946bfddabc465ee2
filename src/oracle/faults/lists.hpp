/// Faults of attention.lists: which keys a token attends to, and where they are said to lie.
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// A window of `width` keys, 127 or 129.
void window_width(FaultyEngine& subject, const Parameters& parameters);
/// page * page bytes taken modulo `wrap`.
void address_wraps(FaultyEngine& subject, const Parameters& parameters);
/// Slots counted as if a page had `rows` rows.
void page_size_assumed(FaultyEngine& subject, const Parameters& parameters);
/// Rows of the list are read `by` items too close together.
void list_stride(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
