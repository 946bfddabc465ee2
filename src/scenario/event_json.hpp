/// An event as JSON, the form in which plans and dumps carry it. Internal to src/scenario.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario/event.hpp"

namespace dsv4::scenario {

/// {"prefill": {"request": "a", "tokens": 37}}
nlohmann::ordered_json event_json(const EventBody& body);

}  // namespace dsv4::scenario
