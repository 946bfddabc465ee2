/// Faults of what turns rows into bytes: kv.window, compress.finish, indexer.finish, indexer.query.
#pragma once

#include "oracle/faults/compressor_form.hpp"
#include "oracle/faults/math.hpp"

namespace dsv4::oracle::faults {

/// What is wrong with a finished row (docs/numerics.md 12.7 and 4).
struct FinishChange {
  enum class Position : std::uint8_t { first, index, last };
  Position position = Position::first;  ///< of the window: where RoPE rotates to
  bool hadamard = true;                 ///< indexer only
  Quantiser quantiser;                  ///< e4m3
};
/// Finishes the entries of a step again, with a change.
void refinish(FaultyEngine& subject, const StageCall& call, const CompressorStages& stages,
              const FinishChange& change);
/// Quantises the rows of kv.window again, with a change.
void requantise_window(FaultyEngine& subject, const StageCall& call, const Quantiser& how);
/// Makes the index query again from the query latent.
struct QueryChange {
  Pairing pairing = Pairing::neighbours;
  bool hadamard = true;
};
void remake_query(FaultyEngine& subject, const StageCall& call, const QueryChange& change);

void entry_rotated_elsewhere(FaultyEngine& subject, const Parameters& parameters);
void query_half_split(FaultyEngine& subject, const Parameters& parameters);
void hadamard_dropped_on_key(FaultyEngine& subject, const Parameters& parameters);
void hadamard_dropped_on_both(FaultyEngine& subject, const Parameters& parameters);
void quantise_unrounded_scale(FaultyEngine& subject, const Parameters& parameters);
void quantise_scale_rounded_down(FaultyEngine& subject, const Parameters& parameters);
void quantise_without_clamp(FaultyEngine& subject, const Parameters& parameters);
inline constexpr ParameterInfo kRows{"rows", "window", "window|entries|index", 0, 0, "of which cache"};

}  // namespace dsv4::oracle::faults
