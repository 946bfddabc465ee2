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

namespace {

constexpr const char* kReal = "real";
constexpr const char* kReference = "reference";

std::vector<std::string> scripts_in(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string find_scenario(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error) || name.find('/') != std::string::npos) return name;
  const fs::path own = scenario_folder();
  for (const fs::path& folder : {own, own / kReference, own / kReal}) {
    for (const std::string& candidate : {name, name + ".yaml"}) {
      if (fs::is_regular_file(folder / candidate, error)) return (folder / candidate).string();
    }
  }
  return name;  // reading it says what is wrong
}

std::vector<std::string> own_scenarios() {
  return scripts_in(scenario_folder());
}

std::vector<std::string> reference_scenarios() {
  return scripts_in(fs::path(scenario_folder()) / kReference);
}

std::vector<std::string> real_scenarios() {
  return scripts_in(fs::path(scenario_folder()) / kReal);
}

}  // namespace dsv4::cli
