/// Structure in the difference of two tensors: whether the subject holds what the reference holds, only
/// elsewhere or changed in one simple way. A reading predicts elements of the subject from the reference; its
/// share is the part of the differing elements that it predicts to the bit, and elements that do not differ
/// but should count against it.
///
/// Readings look at rows of the last axis in which something differs. NaN equals NaN. Coincidence: a reading
/// that moves elements needs four hits of two different values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/packed_row.hpp"
#include "model/tensor.hpp"

namespace dsv4::compare {

struct Reading {
  std::string name;            ///< "halves_swapped", "neighbouring_row", ...
  std::string sentence;        ///< with its numbers, without a full stop
  std::int64_t explained = 0;  ///< differing elements predicted
  std::int64_t against = 0;    ///< elements predicted to differ that do not
  std::int64_t differing = 0;
  double share() const {
    return differing + against == 0
               ? 0.0
               : static_cast<double>(explained) / static_cast<double>(differing + against);
  }
  bool certain() const { return differing > 0 && explained == differing && against == 0; }
};

struct ReadingInput {
  const Tensor* reference = nullptr;
  const Tensor* subject = nullptr;
  /// Bytes of packed rows or pages; empty: plain elements.
  std::optional<PackedRow> packed;
  /// Elements of the last axis that RoPE rotates, at its end; 0: none.
  std::int64_t rotated = 0;
  /// The reference's tensor of the step before it that published one; null: none.
  const Tensor* previous = nullptr;
  /// False for elements that no rule judges; empty: all are.
  std::function<bool(std::int64_t row, std::int64_t element_of_row)> judged;
};

/// Those with a share of `least` at least, best first, at most `most`; a reading that follows from a better
/// one is left out. Empty where shapes or dtypes differ or nothing does.
std::vector<Reading> readings(const ReadingInput& input, double least = 0.9, std::size_t most = 3);

}  // namespace dsv4::compare
