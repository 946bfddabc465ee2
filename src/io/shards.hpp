/// A set of safetensors files looked up by tensor name: a folder with model.safetensors.index.json, a folder
/// with one *.safetensors file, or a list of files. Shards are opened when a tensor of theirs is asked for.
/// Internal to src/io.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace dsv4::io {

class Shards {
 public:
  /// Throws FileError: nothing there, bad index, one tensor in two files.
  explicit Shards(const std::vector<std::string>& where);

  struct Found {
    const StTensor* tensor = nullptr;  ///< null: no file has it
    std::string file;                  ///< where it is, or what was searched
  };
  /// `name` as it is, or behind "model.". Throws FileError when the index names a shard that lacks the
  /// tensor.
  Found find(const std::string& name) const;

 private:
  const SafetensorsFile& open(const std::string& path) const;
  void read_index(const std::string& folder, const std::string& index);
  void add_file(const std::string& path);

  std::string searched_;
  std::map<std::string, std::string> shard_of_;  ///< tensor name -> path
  mutable std::mutex mutex_;
  mutable std::map<std::string, SafetensorsFile> files_;
};

}  // namespace dsv4::io
