/// Smaller variants of one event and of the options of a scenario. Internal to src/scenario (shrink.cpp).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "scenario/scenario.hpp"

namespace dsv4::scenario {

/// Requests and snapshots that an event names.
std::set<std::string> names_in(const Event& event);
/// Names that an event makes out of others: a prefix hit's request, a snapshot, a loaded request. Empty:
/// none.
std::string made_from_others(const Event& event);

/// Simpler events that could stand in an event's place: without one part, without options, as a prefill.
std::vector<Event> simpler_events(const Event& event);
/// The event with one of its numbers smaller, smallest first.
std::vector<Event> smaller_events(const Event& event);
/// The tokens that an event appends to one request and nothing else; 0: it does other things.
std::int32_t appended_tokens(const Event& event, std::string& request);

/// Scenarios with one option less each: nearest to the defaults first.
std::vector<Scenario> simpler_options(const Scenario& scenario);

}  // namespace dsv4::scenario
