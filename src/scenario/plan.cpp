#include "scenario/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/config_check.hpp"
#include "model/error.hpp"
#include "scenario/planner.hpp"

namespace dsv4::scenario {
namespace {

RunConfig config_of(const Scenario& scenario, const Overrides& overrides) {
  RunConfig config;
  config.geometry = scenario.model.geometry;
  config.layers = scenario.model.layers;
  config.chain = scenario.model.chain;
  config.profile = overrides.profile ? profile_named(*overrides.profile) : scenario.profile;
  config.seed = overrides.seed.value_or(scenario.seed);
  config.seed_edits = scenario.seed_edits;
  config.cache = scenario.cache;
  if (overrides.c4_state) config.cache.c4_state = *overrides.c4_state;
  if (overrides.c128_state) config.cache.c128_state = *overrides.c128_state;
  if (overrides.allocate) config.cache.allocate = *overrides.allocate;
  if (config.cache.first_page && config.cache.allocate == Allocate::shuffled) {
    throw UsageError(scenario.file + ": pages takes first only where pages are not shuffled");
  }
  if (const std::string fault = drafting_fault(config.cache, config.layers); !fault.empty()) {
    throw UsageError(fmt::format("{}: {}", scenario.file, fault));
  }
  return config;
}

/// Sizes of pools and bases: what the dry run held at its peak, or what the scenario says.
void size_pools(const Planner& dry, const std::string& file, RunConfig& config) {
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    const auto pool = static_cast<Pool>(i);
    if (!dry.memory().uses(pool)) continue;
    config.pool_pages[i] = config.cache.pool_pages.value_or(dry.memory().pool(pool).peak()) + 1;
    const std::int64_t slots = config.pool_pages[i] * page_rows(config.cache, pool);
    if (slots > std::numeric_limits<std::int32_t>::max()) {
      throw UsageError(fmt::format("{}: pool {} of {} pages has {} slots, more than 2^31 - 1", file,
                                   name(pool), config.pool_pages[i], slots));
    }
  }
  config.state_bases = std::max(1, dry.memory().bases().peak());
}

struct Planned {
  RunPlan run;
  std::vector<Stream> streams;
};

/// Runs `walk` twice: to size the pools, then with them.
template <class Walk>
Planned planned(RunConfig config, const Scenario& scenario, const Walk& walk) {
  Planner dry(config, scenario.trace, scenario.file, false);
  walk(dry);
  size_pools(dry, scenario.file, config);
  Planner planner(config, scenario.trace, scenario.file, true);
  walk(planner);
  std::vector<Stream> streams = planner.streams();
  return {planner.take(), std::move(streams)};
}

Planned plan_events(const Scenario& scenario, const Overrides& overrides) {
  require(scenario.sweep.empty(), "a sweep is expanded before it is planned");
  return planned(config_of(scenario, overrides), scenario, [&](Planner& planner) {
    for (const Event& event : scenario.steps) planner.run(event);
  });
}

/// "prefill a 37", "batch: decode a b; pad 4".
std::string short_event(const nlohmann::ordered_json& event) {
  const auto& body = event.begin().value();
  std::string text = event.begin().key();
  const auto value = [](const nlohmann::ordered_json& item) {
    return item.is_string() ? item.get<std::string>() : item.dump();
  };
  if (body.is_array()) {
    std::string separator = ": ";
    for (const auto& part : body) {
      text += separator + short_event(part);
      separator = "; ";
    }
    return text;
  }
  if (!body.is_object()) return text + " " + value(body);
  for (const auto& [key, item] : body.items()) {
    if (key == "batch") {
      text += " " + short_event({{"batch", item}});
    } else if (item.is_array()) {
      for (const auto& member : item) text += " " + value(member);
    } else if (key == "request") {
      text += " " + value(item);
    } else {
      text += fmt::format(" {}={}", key, value(item));
    }
  }
  return text;
}

}  // namespace

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::compute:
      return "compute";
    case StepKind::restore:
      return "restore";
    case StepKind::lifecycle:
      return "lifecycle";
    case StepKind::fill:
      return "fill";
    case StepKind::graph:
      return "graph";
  }
  throw InternalError("unknown step kind");
}

RunPlan plan(const Scenario& scenario, const Overrides& overrides) {
  return plan_events(scenario, overrides).run;
}

std::vector<RunPlan> sequential_of(const Scenario& scenario, const Overrides& overrides) {
  const Planned all = plan_events(scenario, overrides);
  // The names stay, so that request indices mean the same; the pools are sized anew.
  RunConfig config = all.run.config;
  config.cache.pool_pages.reset();
  config.cache.first_page.reset();
  std::vector<RunPlan> plans;
  for (const Stream& stream : all.streams) {
    if (stream.ids.empty()) continue;
    const std::string& request = config.requests.at(static_cast<std::size_t>(stream.request));
    plans.push_back(
        planned(config, scenario, [&](Planner& planner) { planner.run_alone(request, stream); }).run);
  }
  return plans;
}

std::vector<StepSummary> step_table(const RunPlan& run) {
  std::vector<StepSummary> table;
  std::int64_t pages = 0;
  for (const StepPlan& step : run.steps) {
    StepSummary line;
    line.step = step.index;
    line.kind = name(step.kind);
    line.event = short_event(nlohmann::ordered_json::parse(step.event));
    line.source = step.source;
    line.padding = std::ranges::count(step.rows, -1, &Row::request);
    line.tokens = static_cast<std::int64_t>(step.rows.size()) - line.padding;
    line.allocated = static_cast<std::int64_t>(step.allocated.size());
    line.released = static_cast<std::int64_t>(step.released.size());
    pages += line.allocated - line.released;
    line.pages = pages;
    table.push_back(std::move(line));
  }
  return table;
}

}  // namespace dsv4::scenario
