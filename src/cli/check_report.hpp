/// What `check` says: a line a tensor, a table by stage, what is missing. As text or as records
/// (data/schema/records.schema.json).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compare/comparison.hpp"

namespace dsv4::cli {

/// A case about to be judged.
struct CheckedCase {
  std::string name;
  std::string vectors;  ///< file
  std::string results;  ///< file; empty: there is none
  std::string profile;
  std::string kernel_models;
  std::string rules;
};

class CheckReport {
 public:
  CheckReport(bool json, bool verbose) : json_(json), verbose_(verbose) {}

  void begin(const CheckedCase& checked);
  /// One tensor. `first_ulp`: steps between the two values at its first difference, negative if unknown.
  void tensor(const compare::Comparison& comparison, std::int64_t first_ulp);
  void missing(std::int64_t step, const std::string& stage, const std::string& tensor);
  /// The table and the last line; returns the exit code.
  int finish();

 private:
  struct Stage {
    std::array<std::int64_t, compare::kVerdictCount> verdicts{};
    std::int64_t compared = 0;
    std::int64_t failed = 0;
    std::int64_t missing = 0;
  };
  Stage& of(const std::string& stage);

  bool json_;
  bool verbose_;
  std::string case_;
  std::vector<std::string> order_;  ///< stages as they came
  std::map<std::string, Stage> stages_;
  std::vector<std::string> missing_;  ///< of the case, for the text form
  std::int64_t elements_ = 0;
};

}  // namespace dsv4::cli
