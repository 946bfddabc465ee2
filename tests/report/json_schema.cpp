#include "report/json_schema.hpp"

#include <set>

namespace dsv4::test {
namespace {

using nlohmann::json;

bool is_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

bool has_type(const json& value, const json& types) {
  if (types.is_string()) return is_type(value, types);
  for (const json& type : types) {
    if (is_type(value, type)) return true;
  }
  return false;
}

}  // namespace

std::string violation(const json& value, const json& schema, const json& root, const std::string& path) {
  static const std::set<std::string> kKnown{
      "$schema",    "title",    "description",          "$defs", "oneOf", "$ref", "type", "const", "enum",
      "properties", "required", "additionalProperties", "items"};
  for (const auto& [key, rule] : schema.items()) {
    if (!kKnown.contains(key)) return path + ": the schema uses " + key;
  }
  if (schema.contains("$ref")) {
    const std::string name = schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
    return violation(value, root["$defs"].at(name), root, path);
  }
  if (schema.contains("oneOf")) {
    std::string all;
    int matches = 0;
    for (const json& option : schema["oneOf"]) {
      const std::string problem = violation(value, option, root, path);
      matches += problem.empty();
      all += problem + "\n";
    }
    return matches == 1 ? "" : path + ": " + std::to_string(matches) + " records match\n" + all;
  }
  if (schema.contains("const") && value != schema["const"]) return path + ": not " + schema["const"].dump();
  if (schema.contains("enum")) {
    bool found = false;
    for (const json& option : schema["enum"]) found = found || option == value;
    if (!found) return path + ": " + value.dump() + " is none of " + schema["enum"].dump();
  }
  if (schema.contains("type") && !has_type(value, schema["type"])) {
    return path + ": " + value.dump() + " is no " + schema["type"].dump();
  }
  if (value.is_array() && schema.contains("items")) {
    for (const json& item : value) {
      const std::string problem = violation(item, schema["items"], root, path + "[]");
      if (!problem.empty()) return problem;
    }
  }
  if (!value.is_object()) return "";
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return path + ": lacks " + key.get<std::string>();
  }
  const json properties = schema.value("properties", json::object());
  for (const auto& [key, item] : value.items()) {
    if (properties.contains(key)) {
      const std::string problem = violation(item, properties[key], root, path + "." + key);
      if (!problem.empty()) return problem;
      continue;
    }
    const json other = schema.value("additionalProperties", json(true));
    if (other == json(false)) return path + ": " + key + " is not in the schema";
    if (other.is_object()) {
      const std::string problem = violation(item, other, root, path + "." + key);
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

}  // namespace dsv4::test
