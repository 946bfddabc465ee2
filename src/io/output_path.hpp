/// Where a command may write: checked before it computes anything, so that a run of an hour does not end at a
/// name that cannot take its result, and nothing that a person still needs is replaced.
///
/// A target is refused, with a message that names it, when
///   its folder is missing or cannot be written                                          FileError
///   it, or its .partial, exists and is no regular file: a folder, device, pipe          FileError
///   it exists and holds something else than what is written: a foreign file             FileError
///   it, or its .partial, is a file that the command reads, or another of its targets    UsageError
/// An older result of the same kind, and an empty file, are replaced.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace dsv4::io {

enum class OutputKind : std::uint8_t {
  hdf5,         ///< dump, checkpoint or golden rows: root attribute `schema` begins with "dsv4-"
  safetensors,  ///< a length and a JSON header
  text,         ///< scenario, digests, JSON: no zero byte at its beginning
};

class OutputPaths {
 public:
  /// A file that the command reads; of a folder, every file in it. Empty and absent paths are ignored.
  void reads(const std::string& path);
  /// Checks a target, which later targets must not be.
  void writes(const std::string& path, OutputKind kind);
  /// Checks a folder that is created when it is missing: what is there is a folder, or can become one.
  static void writes_folder(const std::string& path);

 private:
  void refuse_same(const std::string& path, const std::string& target) const;
  std::map<std::string, std::string> inputs_;  ///< paths by what identifies the file
  std::map<std::string, std::string> targets_;
};

}  // namespace dsv4::io
