/// Shorthands of the scenario tests.
#pragma once

#include <string>

#include "model/error.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario::test {

inline Scenario parse(const std::string& text) {
  return parse_scenario(text, "s.yaml");
}
inline RunPlan planned(const std::string& text) {
  return plan(parse(text));
}

/// The message of the UsageError that `call` throws; "no error" if it throws none.
template <class Call>
std::string usage_error(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

inline const std::vector<std::int32_t>& table(const LiveRequest& live, Pool pool) {
  return (*live.tables)[static_cast<std::size_t>(pool)];
}
inline const std::vector<std::int32_t>& table(const RequestStep& share, Pool pool) {
  return (*share.tables)[static_cast<std::size_t>(pool)];
}

}  // namespace dsv4::scenario::test
