/// Where the program's own scenarios and golden data lie: installed beside it, or in the source tree it was
/// built from.
#pragma once

#include <string>
#include <vector>

namespace dsv4::cli {

/// Folder of installed data (`<prefix>/share/dsv4-oracle`) if the program is installed, else the source tree.
std::string data_root();
std::string scenario_folder();
std::string golden_folder();
std::string recorded_folder();  ///< of what the CUDA engine produced on an H200

/// A path that exists as given, or the name of one of the program's own scenarios ("quickstart").
std::string find_scenario(const std::string& name);
/// The program's own scenarios, sorted: the small ones that every exact engine runs, those with a profile of which the
/// reference alone computes every axis, and those of real geometry.
std::vector<std::string> own_scenarios();
std::vector<std::string> reference_scenarios();
std::vector<std::string> real_scenarios();

}  // namespace dsv4::cli
