#include "cli/json_lines.hpp"

#include <iostream>

namespace dsv4::cli {

void print_json_line(const nlohmann::ordered_json& record) {
  std::cout << record.dump() << '\n';
}

}  // namespace dsv4::cli
