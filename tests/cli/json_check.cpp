/// json_check lines|file PATH: succeeds if the file is JSON Lines, or one JSON document, by the letter of RFC
/// 8259. json_check records PATH SCHEMA...: every line is a record that one of the schemas describes.
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "report/json_schema.hpp"

namespace {

using nlohmann::json;

/// True when a schema has a record of this type.
bool describes(const json& schema, const json& record) {
  for (const auto& [name, definition] : schema.at("$defs").items()) {
    const json properties = definition.value("properties", json::object());
    if (properties.contains("type") && properties["type"].value("const", json()) == record.at("type"))
      return true;
  }
  return false;
}

void check_record(const json& record, const std::vector<json>& schemas) {
  for (const json& schema : schemas) {
    if (!describes(schema, record)) continue;
    const std::string problem = dsv4::test::violation(record, schema, schema, record.at("type"));
    if (!problem.empty()) throw std::runtime_error(problem);
    return;
  }
  throw std::runtime_error("no schema describes a record of type " + record.at("type").dump());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  std::ifstream in(argv[2], std::ios::binary);
  if (!in) return 2;
  int number = 0;
  try {
    std::vector<json> schemas;
    for (int i = 3; i < argc; ++i) schemas.push_back(json::parse(std::ifstream(argv[i])));
    if (what == "file")
      return json::parse(std::string(std::istreambuf_iterator<char>(in), {})).empty() ? 1 : 0;
    for (std::string line; std::getline(in, line); ++number) {
      const json record = json::parse(line);
      if (!record.is_object()) throw std::runtime_error("not an object");
      if (what == "records") check_record(record, schemas);
    }
    return number > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << argv[2] << ", line " << number + 1 << ": " << error.what() << '\n';
    return 1;
  }
}
