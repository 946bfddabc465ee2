/// `check` on the tables of single operations that `golden export --format json` writes.
#pragma once

#include <string>
#include <vector>

#include "cli/check_report.hpp"
#include "compare/rule.hpp"

namespace dsv4::cli {

/// JSON files of a folder, or the file itself; a manifest of safetensors is none.
std::vector<std::string> vector_files_of(const std::string& path);

/// Judges the outputs of every test; those that the results leave out are missing. Throws FileError for a
/// file of another kind, a test or a field that the vectors do not hold, another input, or an output of
/// another length.
void check_vector_file(const std::string& vectors, const std::string& results, const compare::Rules& rules,
                       CheckReport& report);

}  // namespace dsv4::cli
