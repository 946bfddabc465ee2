/// What a dump states about itself, checked before anything uses it as an index, a divisor or a size: batch
/// tables, events, shapes, dtypes and the index values of tensors. Every fault is a FileError that names file
/// and object.
#pragma once

#include <string>

#include "model/observation.hpp"

namespace dsv4::io {

/// A name or description that is printed as it stands: not empty, at most 256 bytes, no control characters.
void check_plain_text(const std::string& text, const std::string& file, const std::string& object);

/// JSON, and an object.
void check_event(const std::string& event, const std::string& file, const std::string& object);

/// Requests, positions, slots and pages exist; padding rows are -1 throughout; prefix hits name requests.
/// `group` is the path of the tables.
void check_batch(const BatchTables& batch, const RunConfig& config, const std::string& file,
                 const std::string& group);

/// A stage tensor has the dtype class, axes, widths and index values that catalogue, geometry and batch
/// allow. `unrounded`: it is the float64 form.
void check_tensor(const Tensor& tensor, TensorId id, bool unrounded, const RunConfig& config, int layer,
                  const BatchTables& batch, const std::string& file, const std::string& object);

/// Tables of a step: int32 with their columns, pools, requests and pages that exist, each row once.
void check_tables(const TableState& tables, const RunConfig& config, const std::string& file,
                  const std::string& group);

/// A whole cache: bytes [page, byte], or float32 [row, channel].
void check_snapshot(const Tensor& tensor, const std::string& file, const std::string& object);

}  // namespace dsv4::io
