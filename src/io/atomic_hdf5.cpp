#include "io/atomic_hdf5.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// Learns of writes that fail late.
bool synchronise(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool written = ::fsync(descriptor) == 0;
  return ::close(descriptor) == 0 && written;
}

}  // namespace

void write_hdf5(const std::string& path, const std::function<void(Hdf5Group& root)>& fill) {
  const std::string partial = path + ".partial";
  Hdf5File file = Hdf5File::create(partial);
  try {
    try {
      {
        Hdf5Group root = file.root();
        fill(root);
      }
      file.close();
    } catch (...) {
      file.discard();
      throw;
    }
    if (!synchronise(partial) || std::rename(partial.c_str(), path.c_str()) != 0) {
      throw FileError(path + ": cannot complete: " + std::strerror(errno));
    }
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

}  // namespace dsv4::io
