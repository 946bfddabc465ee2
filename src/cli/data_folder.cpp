#include "cli/data_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace dsv4::cli {
namespace fs = std::filesystem;

std::string data_root() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed = program.parent_path().parent_path() / "share" / "dsv4-oracle";
    if (fs::is_directory(installed, error)) return installed.string();
  }
  return DSV4_SOURCE_FOLDER;
}

std::string scenario_folder() {
  return (fs::path(data_root()) / "scenarios").string();
}

std::string golden_folder() {
  return (fs::path(data_root()) / "data" / "golden").string();
}

std::string recorded_folder() {
  return (fs::path(data_root()) / "data" / "recorded" / "h200").string();
}

std::string find_scenario(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error) || name.find('/') != std::string::npos) return name;
  for (const std::string& candidate : {name, name + ".yaml"}) {
    const fs::path own = fs::path(scenario_folder()) / candidate;
    if (fs::exists(own, error)) return own.string();
  }
  return name;  // reading it says what is wrong
}

std::vector<std::string> own_scenarios() {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(scenario_folder(), error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace dsv4::cli
