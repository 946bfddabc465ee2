#include "io/output_path.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/hdf5_file.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {
namespace fs = std::filesystem;

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::character:
    case fs::file_type::block:
      return "a device";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "no regular file";
  }
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

/// Equal for two names of one file: what the file system calls it, or the name where nothing is there yet.
std::string identity(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0) return fmt::format("{}:{}", about.st_dev, about.st_ino);
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  return error ? path : whole.string();
}

void require_writable_folder(const fs::path& folder, const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw FileError(path + ": there is no folder " + folder.string());
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw FileError(path + ": cannot write to folder " + folder.string() + ": " + std::strerror(errno));
  }
}

/// True when something is there; throws when it is no regular file.
bool is_there(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return false;
  if (!fs::is_regular_file(status)) {
    throw FileError(fmt::format("{}: is {}, and cannot be replaced by a file", path, kind_of(status.type())));
  }
  return true;
}

bool is_ours(const std::string& path, OutputKind kind) {
  std::array<char, 4096> begin{};
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), begin.size());
  const auto size = static_cast<std::size_t>(in.gcount());
  if (size == 0) return in.eof();
  if (kind == OutputKind::text) return std::memchr(begin.data(), 0, size) == nullptr;
  if (kind == OutputKind::safetensors) return size > 8 && begin[8] == '{';
  try {
    const auto schema = Hdf5File::open(path).attribute("/", "schema");
    const auto* text = schema ? std::get_if<std::string>(&*schema) : nullptr;
    return text != nullptr && text->starts_with("dsv4-");
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

void OutputPaths::reads(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    inputs_.emplace(identity(path), path);
    return;
  }
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file(error)) inputs_.emplace(identity(entry.path().string()), entry.path().string());
  }
}

void OutputPaths::refuse_same(const std::string& path, const std::string& target) const {
  const std::string same = identity(path);
  if (const auto input = inputs_.find(same); input != inputs_.end()) {
    throw UsageError(fmt::format("{}: would overwrite {}, which this command reads", target, input->second));
  }
  if (const auto other = targets_.find(same); other != targets_.end()) {
    throw UsageError(fmt::format("{}: this command would write {} twice", target, other->second));
  }
}

void OutputPaths::writes(const std::string& path, OutputKind kind) {
  if (fs::path(path).filename().empty()) throw FileError("'" + path + "': names no file to write");
  require_writable_folder(folder_of(path), path);
  const std::string partial = path + ".partial";
  refuse_same(path, path);
  refuse_same(partial, path);
  is_there(partial);
  if (is_there(path) && !is_ours(path, kind)) {
    constexpr std::array<const char*, 3> kNames{"dump, checkpoint or golden file", "safetensors file",
                                                "text file"};
    throw FileError(fmt::format("{}: exists and is no {}; it is not overwritten", path,
                                kNames[static_cast<std::size_t>(kind)]));
  }
  targets_.emplace(identity(path), path);
  targets_.emplace(identity(partial), partial);
}

void OutputPaths::writes_folder(const std::string& path) {
  std::error_code error;
  fs::path at(path);
  if (fs::exists(fs::status(at, error))) {
    if (!fs::is_directory(at, error)) throw FileError(path + ": exists and is no folder");
    return require_writable_folder(at, path);
  }
  at = fs::absolute(at, error).lexically_normal();
  while (at.has_relative_path() && !fs::exists(fs::status(at, error))) at = at.parent_path();
  require_writable_folder(at, path);
}

}  // namespace dsv4::io
