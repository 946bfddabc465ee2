/// Golden cases in the formats of other projects: HDF5, one safetensors file a case with a manifest, JSON
/// vectors, and the seeded weights under checkpoint names.
#pragma once

#include <string>
#include <vector>

#include "oracle/golden/record.hpp"

namespace dsv4::oracle::golden {

/// Each returns the files written. `folder` exists.
std::vector<std::string> export_hdf5(const std::string& folder, const std::vector<Record>& records);
/// Names are "NNNNNN/<stage>/<tensor>"; which rows they are, dims and digests are in manifest.json.
std::vector<std::string> export_safetensors(const std::string& folder, const std::vector<Record>& records);
std::vector<std::string> export_json(const std::string& folder);
/// CASE.weights.safetensors for each case.
std::vector<std::string> export_case_weights(const std::string& folder, const std::vector<Record>& records);

}  // namespace dsv4::oracle::golden
