/// Delta debugging of a scenario: the smallest one found for which a predicate still holds.
///
/// In rounds, until a round changes nothing: options to their defaults (layers to one, cache forms, geometry,
/// profile axis by axis), whole requests, runs of steps, parts of batches, pairs of steps, events to simpler
/// ones and neighbours merged into one chunk, numbers to the smallest that still do. Every candidate is
/// written as YAML and read again, so what is tried is what would be saved; one that does not plan is none.
#pragma once

#include <cstdint>
#include <functional>

#include "scenario/scenario.hpp"

namespace dsv4::scenario {

struct Shrunk {
  Scenario scenario;         ///< `text` is its YAML
  std::int64_t tried = 0;    ///< candidates that planned and were put to the predicate
  bool at_fixpoint = false;  ///< false: stopped early
};

/// `fails` must hold for the scenario itself; UsageErrors that it throws count as false. `stop` ends the
/// search between candidates.
Shrunk shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails,
              const std::function<bool()>& stop);

}  // namespace dsv4::scenario
