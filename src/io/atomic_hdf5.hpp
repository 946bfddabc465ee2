/// An HDF5 file that appears under its name only when it is whole, as AtomicFile does for other files:
/// written to PATH.partial, renamed when `fill` returns, removed when anything fails. Errors are FileError.
#pragma once

#include <functional>
#include <string>

#include "io/hdf5_file.hpp"

namespace dsv4::io {

/// `fill` gets the root group; groups made from it must be gone when it returns.
void write_hdf5(const std::string& path, const std::function<void(Hdf5Group& root)>& fill);

}  // namespace dsv4::io
