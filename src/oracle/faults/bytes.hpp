/// Faults of single bits and of how codes are packed; the scale that is twice as large.
#pragma once

#include <optional>
#include <string_view>

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

/// One bit of one element of a tensor, each time that the tensor is published. Where it carries rows of a
/// cache, the row in memory is changed too.
struct BitFlip {
  TensorId tensor{};
  std::optional<std::int64_t> element;  ///< flat index; empty: in the last row that is not padding
  std::optional<int> bit;               ///< empty: the lowest that leaves an index within its range
};
/// "TENSOR[:element[:bit]]"; UsageError naming the nearest tensors.
BitFlip parse_bit_flip(std::string_view text);
void flip_bit(FaultyEngine& subject, const BitFlip& flip);

/// Pages of FP4 index rows: the two codes of a byte exchanged.
void nibbles_swapped(FaultyEngine& subject, const Parameters& parameters);
/// Pages of FP4 index rows: each scale in the next block's place.
void scale_group_shifted(FaultyEngine& subject, const Parameters& parameters);
/// Window rows whose scales are doubled and codes halved where that is exact (allowed).
void scale_doubled(FaultyEngine& subject, const Parameters& parameters);

}  // namespace dsv4::oracle::faults
