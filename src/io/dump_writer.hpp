/// Writes a dump (docs/dump-format.md): OUT.h5.partial, flushed after every step, renamed to OUT.h5 by
/// finish().
///
/// Contract: equal content gives equal bytes (no times, hosts, threads). A step becomes visible in the file
/// only as a whole: its objects are written unlinked, flushed, then linked and flushed again, so a run killed
/// at any moment leaves every earlier step readable. Space for a step is reserved before it is written; a
/// full disk is a FileError, the .partial holds the steps before it, nothing appears under the final name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/dump_format.hpp"
#include "model/observation.hpp"

namespace dsv4::io {

struct DumpOptions {
  bool compress = true;  ///< shuffle + gzip 1 on datasets of 64 KiB and more; Fletcher32 is kept anyway
  std::int64_t max_bytes = -1;  ///< refuse a step that would let the file grow beyond this; -1: no cap
  bool reserve = true;          ///< set a step's space aside before writing it; false where that is slow
  std::optional<DumpSelection> selection{};  ///< what the run was told to keep; empty: not stated
  bool overwrite = true;  ///< an existing file of the final name is replaced by finish(); else refused
};

class DumpWriter {
 public:
  /// Creates OUT.h5.partial with root attributes, /scenario, /config and /requests. Throws FileError.
  DumpWriter(std::string path, const SourceInfo& source, const DumpOptions& options = {});
  /// Keeps the .partial (complete = 0) unless finish() was called.
  ~DumpWriter();
  DumpWriter(const DumpWriter&) = delete;
  DumpWriter& operator=(const DumpWriter&) = delete;

  /// Appends one step: batch tables, tensors, unrounded values, state digests and snapshots. Step numbers
  /// ascend. Throws FileError (disk full, cap); the writer is then closed and the .partial readable.
  void write(const StepObservation& step);

  /// Sets complete = 1, closes, renames. Throws FileError.
  void finish();

  const std::string& path() const;          ///< final name
  const std::string& partial_path() const;  ///< final name + ".partial"
  std::int64_t steps() const;               ///< steps written
  std::int64_t bytes() const;               ///< size of the file after the last flush

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Upper bound of what write() adds to the file: raw content plus object headers.
std::int64_t estimate_bytes(const StepObservation& step);

/// Bytes that an unprivileged process may still write to the file system of `path` (whose folder must exist).
std::int64_t free_bytes(const std::string& path);

/// Throws FileError naming path, needed and free bytes when `needed` does not fit.
void require_free_space(const std::string& path, std::int64_t needed);

}  // namespace dsv4::io
