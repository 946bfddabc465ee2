/// A scenario back as YAML: what is written plans exactly like the scenario it was written from.
///
/// Values that are the default are left out. A model that came from a config.json is written as a preset with
/// its fields, so the text needs no other file but those of `hidden` and `weights`, whose paths are absolute.
/// `seed`, `cache` and the rest are those of the scenario, whatever its `text` says.
#pragma once

#include <string>

#include "scenario/scenario.hpp"

namespace dsv4::scenario {

/// Throws InternalError for a sweep that was not expanded.
std::string write_yaml(const Scenario& scenario);

/// One event on one line, without the dash: "prefill: {request: a, tokens: 37}".
std::string write_event(const Event& event);

}  // namespace dsv4::scenario
