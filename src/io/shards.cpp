#include "io/shards.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/error.hpp"

namespace dsv4::io {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace

Shards::Shards(const std::vector<std::string>& where) {
  if (where.empty()) throw UsageError("weights: no file and no folder given");
  for (const std::string& path : where) searched_ += (searched_.empty() ? "" : ", ") + path;
  std::error_code ignored;
  for (const std::string& path : where) {
    if (!fs::is_directory(path, ignored)) {
      add_file(path);
      continue;
    }
    const std::string index = (fs::path(path) / kIndexName).string();
    if (fs::exists(index, ignored)) {
      read_index(path, index);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".safetensors") found.push_back(entry.path().string());
    }
    if (found.empty()) throw FileError(path + ": holds neither " + kIndexName + " nor a *.safetensors file");
    std::ranges::sort(found);
    for (const std::string& file : found) add_file(file);
  }
}

void Shards::read_index(const std::string& folder, const std::string& index) {
  std::ifstream in(index, std::ios::binary);
  if (!in) throw FileError(index + ": cannot open");
  nlohmann::json root;
  try {
    in >> root;
  } catch (const nlohmann::json::exception& error) {
    throw FileError(index + ": not JSON: " + error.what());
  }
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    throw FileError(index + ": has no object 'weight_map'");
  }
  for (const auto& [name, shard] : root["weight_map"].items()) {
    if (!shard.is_string()) throw FileError(index + ": weight_map['" + name + "'] is no file name");
    const fs::path file = shard.get<std::string>();
    if (file.is_absolute() || file.has_parent_path()) {
      throw FileError(index + ": weight_map['" + name + "'] leaves the folder: " + file.string());
    }
    shard_of_[name] = (fs::path(folder) / file).string();
  }
}

void Shards::add_file(const std::string& path) {
  for (const auto& [name, tensor] : open(path).tensors()) {
    const auto [at, added] = shard_of_.emplace(name, path);
    if (!added) throw FileError("tensor '" + name + "' is in " + at->second + " and in " + path);
  }
}

const SafetensorsFile& Shards::open(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  return found != files_.end() ? found->second : files_.emplace(path, SafetensorsFile(path)).first->second;
}

Shards::Found Shards::find(const std::string& name) const {
  for (const std::string& full : {name, "model." + name}) {
    const auto shard = shard_of_.find(full);
    if (shard == shard_of_.end()) continue;
    const StTensor* tensor = open(shard->second).find(full);
    if (tensor == nullptr)
      throw FileError(shard->second + ": the index puts tensor '" + full + "' here; it is not");
    return {tensor, shard->second};
  }
  return {nullptr, searched_};
}

}  // namespace dsv4::io
