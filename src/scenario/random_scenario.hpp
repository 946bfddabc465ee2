/// Random valid scenarios, weighted to boundaries: layers, geometry, profile, page sizes, allocation and
/// state forms, and a script of events (docs/fuzzing.md).
#pragma once

#include <cstdint>

#include "scenario/dice.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario {

/// How large a random scenario may get.
struct RandomSize {
  int events = 14;
  int tokens = 330;  ///< rows of all steps but restores, about
};

/// The scenario of these choices; `text` is its YAML. Throws InternalError for one that does not plan, which
/// would be a fault of the grammar.
Scenario random_scenario(Dice dice, const std::string& name, const RandomSize& size = {});

/// Number `index` under a seed; depends on nothing else.
Scenario random_scenario(std::uint64_t seed, std::uint64_t index);

}  // namespace dsv4::scenario
