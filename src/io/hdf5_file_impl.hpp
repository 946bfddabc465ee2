/// What Hdf5File and Hdf5Group hold; internal to src/io.
#pragma once

#include <string>

#include "io/hdf5_calls.hpp"
#include "io/hdf5_file.hpp"

namespace dsv4::io {

inline constexpr std::size_t kContiguousBelow = 64 * 1024;  ///< smaller datasets have no chunks and no filter
inline constexpr hsize_t kMaxChunkBytes = 256 * 1024;

/// The little-endian type of a dtype, in the file and in memory alike.
hid_t memory_type(DType dtype);

struct Hdf5File::Impl {
  std::string path;
  h5::Handle file;
};

struct Hdf5Group::Impl {
  const std::string* file;  ///< path, for messages
  std::string name;
  h5::Handle group;
};

}  // namespace dsv4::io
