#include "scenario/read_text.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "model/error.hpp"

namespace dsv4::scenario {

std::string read_text(const std::string& path, std::size_t limit) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw FileError(path + ": is a folder, not a file");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw FileError(path + ": cannot be read");
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > limit) throw FileError(fmt::format("{}: has more than {} bytes", path, limit));
  }
  if (stream.bad()) throw FileError(path + ": cannot be read");
  return text;
}

}  // namespace dsv4::scenario
