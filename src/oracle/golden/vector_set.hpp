/// Golden vectors and results of another implementation, read back from the files that `golden export` writes
/// (docs/check.md): HDF5, or safetensors with a manifest. Results have the same names, without attributes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/observation.hpp"
#include "oracle/golden/record.hpp"

namespace dsv4::oracle::golden {

/// The kept rows of one case.
struct VectorSet {
  std::string name;  ///< of the case
  std::string file;
  std::string scenario;       ///< YAML
  std::string kernel_models;  ///< as Record has it
  std::vector<KeptTensor> tensors;

  /// Null if the case keeps no such tensor.
  const KeptTensor* find(const std::string& path) const;
};

/// The cases of a file or of a folder, in the order of their names. Throws FileError for a file that is none,
/// a folder without any, rows that do not fit their tensor, a digest that does not.
std::vector<VectorSet> read_vector_sets(const std::string& path);

/// Tensors of another implementation, by path ("000001/q.up/q").
struct ResultSet {
  std::string file;
  std::map<std::string, Tensor> tensors;
};

/// Names of the tensors in a file of results, without reading them.
std::vector<std::string> result_names(const std::string& file);
/// All of them, as the vectors have them. Every name must be one of the vectors'. Throws FileError naming
/// file, tensor and both sides for another dtype or shape.
ResultSet read_results(const std::string& file, const VectorSet& vectors);

/// The case that a file of results says that it belongs to: attribute or metadata `case`, else its stem.
std::string case_of_results(const std::string& file);

/// Kept rows put back to their places in the step's tensors: what comparison and meaning work on. Rows that
/// no tensor keeps are zero; `kept` says which are.
struct StepRows {
  StepObservation observation;
  std::map<TensorId, std::vector<bool>> kept;
};
/// `content` null: the vectors themselves. The batch tables are those of the plan; of results those that the
/// file holds.
StepRows step_rows(const RunConfig& config, const StepPlan& plan, const VectorSet& vectors,
                   const ResultSet* content);

}  // namespace dsv4::oracle::golden
