/// Faults of attention.core and output.project, and sums in another order.
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// How attention is computed again (docs/numerics.md 15): the list in `splits` equal parts, merged.
struct AttentionChange {
  int splits = 1;
  bool sink_in_every_split = false;
  bool base_two_merge = false;  ///< maxima are weighed with 2^x where they are natural logarithms
};
void reattend(FaultyEngine& subject, const StageCall& call, const AttentionChange& change);
/// The output stage again, with the rotation given.
struct OutputChange {
  bool inverse = true;
  bool first_lanes = false;  ///< rotates dims 0..63 instead of the last 64
};
void reproject(FaultyEngine& subject, const StageCall& call, const OutputChange& change);

void sink_in_every_split(FaultyEngine& subject, const Parameters& parameters);
void merge_in_base_two(FaultyEngine& subject, const Parameters& parameters);
/// Lanes without a key are read: from slot 0, or as the last valid slot.
void invalid_lane_read(FaultyEngine& subject, const Parameters& parameters);
void output_rotated_forward(FaultyEngine& subject, const Parameters& parameters);
void output_rotated_first_lanes(FaultyEngine& subject, const Parameters& parameters);
/// q and the window's key of window-only layers rotated as in the others: base and YaRN.
void one_rotary_base(FaultyEngine& subject, const Parameters& parameters);
/// A stage reads its main input as it was in the step before.
void stale_input(FaultyEngine& subject, const Parameters& parameters);
/// Sums over two halves of the list (allowed).
void attention_in_another_order(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
