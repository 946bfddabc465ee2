/// Reading a text file whole, with a limit: a pipe or a device may never end.
#pragma once

#include <cstddef>
#include <string>

namespace dsv4::scenario {

/// Throws FileError for a folder, for what cannot be read, and for more than `limit` bytes.
std::string read_text(const std::string& path, std::size_t limit = std::size_t{64} << 20);

}  // namespace dsv4::scenario
