#include "cli/list_coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "cli/data_folder.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"
#include "model/error.hpp"
#include "scenario/coverage.hpp"
#include "scenario/plan.hpp"

namespace dsv4::cli {
namespace {

constexpr std::size_t kShown = 4;  // scenarios a line; --json has all

std::set<std::string> facts_of(const scenario::Scenario& scenario) {
  std::set<std::string> facts;
  for (const scenario::Scenario& run : scenario::expand(scenario)) {
    facts.merge(scenario::plan_coverage(scenario::plan(run)));
    for (const std::string& fact : run.expect.covers) {
      const scenario::CoverageFact* const known = scenario::coverage_fact(fact);
      if (known != nullptr && known->seen == scenario::Seen::numbers) facts.insert(fact);
    }
  }
  return facts;
}

std::string_view name(scenario::Seen seen) {
  switch (seen) {
    case scenario::Seen::plan:
      return "plan";
    case scenario::Seen::numbers:
      return "numbers";
    case scenario::Seen::fault:
      return "fault";
  }
  throw InternalError("unknown place of a fact");
}

std::string shown(const std::vector<std::string>& scenarios) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, scenarios.size()); ++i)
    text += (i == 0 ? "" : ", ") + scenarios[i];
  if (scenarios.size() > kShown) text += fmt::format(", and {} more", scenarios.size() - kShown);
  return text;
}

}  // namespace

int list_coverage_reach(const std::vector<std::string>& scenarios, bool json) {
  std::vector<std::string> files;
  for (const std::string& scenario : scenarios) files.push_back(find_scenario(scenario));
  if (scenarios.empty()) {
    files = own_scenarios();
    for (const std::string& file : reference_scenarios()) files.push_back(file);
  }
  std::map<std::string, std::vector<std::string>, std::less<>> reached;
  for (const std::string& file : files) {
    const std::string stem = std::filesystem::path(file).stem().string();
    for (const std::string& fact : facts_of(scenario::load_scenario(file))) reached[fact].push_back(stem);
  }
  std::string gaps;
  std::size_t due = 0;
  std::size_t met = 0;
  for (const scenario::CoverageFact& fact : scenario::coverage_catalogue()) {
    const std::vector<std::string> by = reached[std::string(fact.name)];
    if (fact.seen != scenario::Seen::fault) {
      ++due;
      met += by.empty() ? 0 : 1;
      if (by.empty()) gaps += (gaps.empty() ? "" : ", ") + std::string(fact.name);
    }
    if (json) {
      print_json_line({{"type", "coverage_reach"},
                       {"name", fact.name},
                       {"seen", name(fact.seen)},
                       {"description", fact.description},
                       {"scenarios", by}});
      continue;
    }
    const bool gap = by.empty() && fact.seen != scenario::Seen::fault;
    fmt::print("{:<34} {:>3}  {}\n", fact.name, by.size(),
               gap          ? "NONE: " + std::string(fact.description)
               : by.empty() ? "only in a run that is wrong"
                            : shown(by));
  }
  if (json) {
    print_json_line(
        {{"type", "coverage_summary"}, {"scenarios", files.size()}, {"facts", due}, {"reached", met}});
  } else {
    fmt::print("\n{} of {} facts reached by {} scenarios\n", met, due, files.size());
    if (!gaps.empty()) fmt::print("not reached: {}\n", gaps);
  }
  return gaps.empty() ? kDone : kFailed;
}

}  // namespace dsv4::cli
