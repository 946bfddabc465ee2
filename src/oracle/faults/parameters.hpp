/// Parameters of a fault: `key=value,...` behind its name, checked against what the fault declares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4::oracle::faults {

/// One parameter that a fault knows. Either `choices` are given, or the value is a whole number in range.
struct ParameterInfo {
  std::string_view name;
  std::string_view standard;  ///< value where none is given
  std::string_view choices;   ///< "main|indexer"; empty: a number
  std::int64_t least = 0;
  std::int64_t most = INT64_MAX;
  std::string_view help;
  /// Numbers worth trying when a difference is explained, "126|127|129"; kTriedSteps: steps of the run. Choices are all
  /// tried; without either the standard value is.
  std::string_view tried = {};
};
inline constexpr std::string_view kTriedSteps = "steps";

/// The names nearest to a word by edit distance, nearest first, at most three.
std::vector<std::string> nearest_names(std::string_view word, std::vector<std::string> names);
/// "a, b, c"
std::string joined(const std::vector<std::string>& names);

class Parameters {
 public:
  Parameters() = default;
  /// Takes "key=value,key=value". Throws UsageError naming the fault, the key or value, and what is known.
  Parameters(std::string_view fault, std::span<const ParameterInfo> known, std::string_view text);

  /// Of a declared parameter; InternalError for any other.
  std::int64_t number(std::string_view name) const;
  const std::string& word(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace dsv4::oracle::faults
