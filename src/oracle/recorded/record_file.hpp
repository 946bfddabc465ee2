/// Records on disk, one text file a scenario: `SCENARIO.digests` (docs/dump-format.md, recorded data).
///
///   dsv4-recorded/1
///   about engine cuda
///   about device NVIDIA H200
///   run rewind[to=3] canonical <digest of the plan>
///   step 0 <digest of the step's lines>
///   000000 layer_00/q.up/q bfloat16 130,4,512 <digest>     of chosen scenarios
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "oracle/recorded/recorded_run.hpp"

namespace dsv4::oracle::recorded {

inline constexpr const char* kSchema = "dsv4-recorded/1";
inline constexpr const char* kExtension = ".digests";

struct RecordFile {
  std::vector<std::pair<std::string, std::string>> about;  ///< in file order: engine, device, commit ...
  std::vector<RunRecord> runs;

  /// The record of a run, or null.
  const RunRecord* find(const std::string& name, const std::string& profile) const;
  /// A line of `about`, or "".
  std::string said(const std::string& key) const;
};

/// "DIR/rewind.digests" for a scenario's file.
std::string record_path(const std::string& folder, const std::string& scenario_file);

/// Throws FileError naming the line for anything that is no such file.
RecordFile read_record(const std::string& path);

/// Writes it whole or not at all; returns its bytes. `lines` keeps the lines of every step.
std::int64_t write_record(const std::string& path, const RecordFile& record, bool lines);

}  // namespace dsv4::oracle::recorded
