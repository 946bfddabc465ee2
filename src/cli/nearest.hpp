/// Names that a mistyped one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsv4::cli {

/// At most `count` of the names, the nearest first (edits between the two, letters inserted, left out or
/// replaced).
std::vector<std::string> nearest(std::string_view word, std::vector<std::string> names, std::size_t count);

}  // namespace dsv4::cli
