/// `list --coverage`: which facts of the catalogue a library of scenarios reaches, and by which of them.
#pragma once

#include <string>
#include <vector>

namespace dsv4::cli {

/// One line a fact, with the scenarios that reach it. A fact of the plan counts if the plan of any run shows
/// it; one of the numbers, if a scenario expects it, which running the scenario checks. Returns kFailed if a
/// fact that a scenario can reach is reached by none. Without names: the program's own small scenarios.
int list_coverage_reach(const std::vector<std::string>& scenarios, bool json);

}  // namespace dsv4::cli
