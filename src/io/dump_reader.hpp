/// Reads dumps of schema dsv4-dump/1, complete and partial ones, as an ObservationSource and at random.
///
/// Contract: a file that is not HDF5, of another schema, truncated, or inconsistent with the catalogue is a
/// FileError that names file and object; so is a soft or external link, and any index, size or event that
/// cannot be (dump_checks.hpp). Values arrive as stored bits; HDF5 converts nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/dump_format.hpp"
#include "model/observation.hpp"

namespace dsv4::io {

/// One dataset of a dump.
struct DumpEntry {
  std::string path;        ///< "/steps/000003/layer_00/q.up/q"
  std::int64_t step = -1;  ///< -1: not part of a step
  int layer = -1;          ///< -1: batch tables
  std::string stage;       ///< "q.up", "batch", or "state/<cache>"
  std::string tensor;      ///< "q"
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::string dims;  ///< "token,head,dim"
  std::string role;
  std::string digest;
  std::int64_t stored_bytes = 0;  ///< in the file, after filters
  bool known = true;              ///< false: no catalogue tensor; next() and read_step() leave it out
};

class DumpReader : public ObservationSource {
 public:
  /// `verify_digests`: check the digest attribute of every tensor read.
  explicit DumpReader(const std::string& path, bool verify_digests = false);
  ~DumpReader() override;

  const SourceInfo& info() const override;
  std::optional<StepObservation> next() override;

  /// Load only these tensors from now on (all by default).
  void want(const TensorSet& wanted);
  /// Load float64 values before rounding where the file has them (true by default).
  void want_unrounded(bool wanted);
  /// Load state snapshots where the file has them (true by default).
  void want_state_tensors(bool wanted);

  const std::string& path() const;
  /// Root attribute `tool_version`.
  const std::string& tool_version() const;
  /// What the writer chose to keep; empty where the file does not say (a foreign one).
  const std::optional<DumpSelection>& selection() const;
  /// Step numbers present, ascending.
  const std::vector<std::int64_t>& steps() const;
  bool has_step(std::int64_t step) const;
  /// Random access; does not move next(). Throws FileError when the step is absent.
  StepObservation read_step(std::int64_t step) const;
  /// The next call of next() returns this step.
  void seek(std::int64_t step);

  /// One tensor, or nothing when the file does not hold it.
  std::optional<Tensor> read_tensor(std::int64_t step, int layer, TensorId id) const;
  bool has_object(const std::string& path) const;
  /// Any dataset by path, with its `dtype`.
  Tensor read_path(const std::string& path) const;

  /// Every dataset of one step (or of all), in path order.
  std::vector<DumpEntry> list(std::optional<std::int64_t> step = std::nullopt) const;
  /// Metadata of one dataset.
  DumpEntry entry(const std::string& path) const;

  /// Reads everything and compares digests; throws FileError naming the first object that differs.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsv4::io
