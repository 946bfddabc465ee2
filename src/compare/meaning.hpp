/// What a coordinate of a tensor is about: request, token, head, page, block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compare/comparison.hpp"
#include "model/observation.hpp"

namespace dsv4::compare {

/// Coordinate of a row-major element.
std::vector<std::int64_t> coordinate(const std::vector<std::int64_t>& shape, std::int64_t element);

/// "token,head,dim" -> {"token", "head", "dim"}
std::vector<std::string> axis_names(std::string_view dims);

/// What one row of the first axis stands for.
struct RowOwner {
  std::int32_t request = -1;   ///< index into RunConfig::requests; -1: padding or unknown
  std::int32_t position = -1;  ///< token position, or -1
  std::int32_t entry = -1;     ///< entry index, or -1
  std::int64_t slot = -1;      ///< physical slot that the row was written to, or -1
};

/// Explains rows and elements of one layer of one step (layer -1: the batch).
class MeaningOf {
 public:
  MeaningOf(const SourceInfo& info, const StepObservation& step, int layer);

  std::vector<RowOwner> rows(TensorId id) const;
  Meaning element(TensorId id, const Tensor& tensor, std::int64_t element) const;
  /// Rows of a batch table.
  Meaning batch_row(std::int64_t row) const;

 private:
  RowOwner owner(TensorId id, std::int64_t row) const;
  void add_token(Meaning& meaning, const RowOwner& owner) const;
  void add_owner(Meaning& meaning, const RowOwner& owner, TensorId id) const;
  void add_entry(Meaning& meaning, std::int64_t entry) const;
  void add_byte(Meaning& meaning, std::int64_t row_bytes, std::int64_t byte) const;
  std::int64_t at(TensorId id, std::int64_t row) const;

  const SourceInfo& info_;
  const StepObservation& step_;
  int layer_;
};

}  // namespace dsv4::compare
