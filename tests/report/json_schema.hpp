/// The part of JSON Schema that data/schema/report.schema.json uses, so that records can be held against it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsv4::test {

/// Empty if `value` obeys `schema`, else the path and the rule it breaks. Unknown schema keywords are an
/// error.
std::string violation(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root,
                      const std::string& path = "$");

}  // namespace dsv4::test
