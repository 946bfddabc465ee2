/// `sweep:` as text: variables are put in place of `${...}` before the YAML is read, because `${n}` is no
/// YAML value. Internal to src/scenario.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenario/scenario.hpp"

namespace dsv4::scenario {

struct SweepText {
  std::string text;                      ///< without the sweep section, whose lines are left empty
  std::vector<SweepVariable> variables;  ///< empty: no sweep
};

/// Takes the top-level block `sweep:` out of a scenario's text. Values are decimal integers, words
/// ([A-Za-z0-9_.-]+) and ranges `1..16`, alone or in lists. Throws UsageError with a place.
SweepText split_sweep(std::string_view text, const std::string& file);

/// The values of run number `run` of the product, last variable fastest.
std::vector<std::string> sweep_values(const std::vector<SweepVariable>& variables, std::size_t run);
std::size_t sweep_runs(const std::vector<SweepVariable>& variables);

/// Replaces `${expression}` outside comments: a variable, or + - * ( ) over integers and integer variables.
/// Throws UsageError for unknown variables, broken expressions and, so that no axis is lost, unused
/// variables.
std::string substitute(const SweepText& sweep, const std::vector<std::string>& values,
                       const std::string& file);

}  // namespace dsv4::scenario
