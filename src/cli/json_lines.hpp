/// JSON Lines of commands that print records of their own; numbers that JSON cannot hold are strings.
#pragma once

#include <nlohmann/json.hpp>

namespace dsv4::cli {

/// One record on stdout.
void print_json_line(const nlohmann::ordered_json& record);

}  // namespace dsv4::cli
