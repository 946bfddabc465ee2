/// A file that appears under its name only when it is whole: written to PATH.partial, renamed by finish(),
/// removed when something fails before. Errors are FileError with path and reason.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dsv4::io {

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void finish();

 private:
  [[noreturn]] void fail(const char* what);
  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

}  // namespace dsv4::io
