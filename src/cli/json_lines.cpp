#include "cli/json_lines.hpp"

#include <iostream>

namespace dsv4::cli {

void print_json_line(const nlohmann::ordered_json& record) {
  // Names of files need not be UTF-8; JSON must.
  std::cout << record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace dsv4::cli
