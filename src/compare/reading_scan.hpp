/// The pair of tensors that readings look at, and how a hypothesis is counted against it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compare/readings.hpp"

namespace dsv4::compare {

/// What a hypothesis says of an element.
enum class Said : std::uint8_t { nothing, no, yes };
using Hypothesis = std::function<Said(std::int64_t element)>;

class ReadingScan {
 public:
  explicit ReadingScan(const ReadingInput& input);

  bool comparable() const { return comparable_; }
  const ReadingInput& input() const { return input_; }
  const std::vector<std::int64_t>& differing() const { return differing_; }

  std::int64_t width() const { return width_; }  ///< of a unit, the last axis
  std::int64_t rows() const { return rows_; }    ///< of the first axis
  std::int64_t row_width() const { return row_width_; }
  std::int64_t units() const { return width_ == 0 ? 0 : elements_ / width_; }
  DType dtype() const { return dtype_; }

  /// Bits, NaN canonicalised.
  std::uint64_t right(std::int64_t element) const { return bits(*input_.reference, element); }
  std::uint64_t seen(std::int64_t element) const { return bits(*input_.subject, element); }
  std::uint64_t bits(const Tensor& tensor, std::int64_t element) const;
  double right_value(std::int64_t element) const;
  double seen_value(std::int64_t element) const;
  bool judged(std::int64_t element) const;

  /// Counts a hypothesis over the rows of the last axis in which something differs.
  /// `moves`: it takes elements from elsewhere, so a few hits may be coincidence.
  Reading count(std::string name, std::string sentence, const Hypothesis& hypothesis, bool moves) const;
  /// The element is predicted to be that element of the reference; below 0: nothing is said.
  Hypothesis taken_from(std::function<std::int64_t(std::int64_t element)> source) const;

 private:
  ReadingInput input_;
  bool comparable_ = false;
  DType dtype_ = DType::uint8;
  std::int64_t elements_ = 0, width_ = 0, rows_ = 0, row_width_ = 0;
  std::vector<std::int64_t> differing_;
  std::vector<std::int64_t> touched_;  ///< units
};

/// What elements hold (reading_values.cpp): constants, factors, offsets, bits, precision.
void read_values(const ReadingScan& scan, std::vector<Reading>& out);
/// Where elements lie (reading_places.cpp): halves, pairs, shifts, rows, heads, steps, order.
void read_places(const ReadingScan& scan, std::vector<Reading>& out);

}  // namespace dsv4::compare
