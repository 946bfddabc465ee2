/// Golden data on disk: `CASE.digests` (text) and `CASE.h5` (kept rows), byte-identical for equal content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/output_path.hpp"
#include "oracle/golden/record.hpp"

namespace dsv4::oracle::golden {

inline constexpr const char* kSchema = "dsv4-golden/1";

/// Writes both files of a case into a folder that exists; returns their size in bytes.
std::int64_t write_files(const std::string& folder, const Record& record);
/// Checks that write_files() of a case may write where it would.
void check_files(io::OutputPaths& paths, const std::string& folder, const Case& golden_case);

struct Mismatch {
  std::string place;  ///< "canonical-csa, step 1, layer_00/q.up/q"
  std::string expected;
  std::string found;
};

struct Verification {
  std::int64_t compared = 0;  ///< lines and tensors
  std::vector<Mismatch> mismatches;
};

/// Compares a fresh record with the files of a folder. Throws FileError for a file that is missing or cannot
/// be read.
Verification verify_files(const std::string& folder, const Record& record);

/// What `golden list` says about a case on disk.
struct FileSummary {
  std::string name;
  std::int64_t digest_bytes = -1;  ///< -1: no such file
  std::int64_t row_bytes = -1;     ///< -1: no such file; 0: the case keeps no rows
  std::int64_t steps = 0;
  std::int64_t tensors = 0;
};
FileSummary summary(const std::string& folder, const Case& golden_case);

/// Writes the kept rows as HDF5: `/steps/NNNNNN/<stage>/<tensor>` with attributes dtype, dims, role, rows,
/// digest.
void write_rows(const std::string& path, const Record& record);

}  // namespace dsv4::oracle::golden
