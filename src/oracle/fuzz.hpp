/// Random scenarios on pairs of sides, failures shrunk. Scenario i depends on seed and i alone, whatever the
/// pairs, the time and what failed before.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "oracle/trial.hpp"
#include "scenario/shrink.hpp"

namespace dsv4::oracle {

/// The smallest scenario with a divergence of the same signature.
struct ShrunkFailure {
  scenario::Shrunk shrunk;
  Divergence divergence;  ///< of the smallest scenario
};
/// `found` is what the trial says about the scenario, which stays as it is when an engine that broke off does
/// not run any more. `seconds` bounds the search; an interruption ends it.
ShrunkFailure shrink_failure(Trial& trial, const scenario::Scenario& scenario, const Divergence& found,
                             double seconds);

struct FuzzFailure {
  std::uint64_t index = 0;  ///< of the scenario
  std::string pair;
  Divergence divergence;  ///< as it was found
  scenario::Scenario scenario;
  ShrunkFailure smallest;
};

struct FuzzOptions {
  std::uint64_t seed = 0;
  std::uint64_t first = 0;           ///< index of the first scenario
  std::uint64_t count = UINT64_MAX;  ///< scenarios
  double seconds = 1e18;             ///< no scenario starts later
  double shrink_seconds = 30;        ///< for each failure
  std::size_t most_failures = 10;    ///< of different signatures; then the search ends
};

struct FuzzReport {
  std::uint64_t scenarios = 0;
  std::map<std::string, std::int64_t> compared;  ///< tensors and states, by pair
  /// Scenarios that an engine of a pair does not compute (its profile), each with the reason.
  std::map<std::string, std::vector<std::string>> refused;
  std::int64_t diverged = 0;    ///< runs, those of a known signature included
  std::set<std::string> facts;  ///< coverage reached
  double seconds = 0;           ///< without shrinking
  bool interrupted = false;
};

/// Called for each failure of a new signature, and after each scenario.
struct FuzzEvents {
  std::function<void(const FuzzFailure&)> failed;
  std::function<void(const FuzzReport&)> progress;
};

FuzzReport fuzz(const FuzzOptions& options, const std::vector<TrialPair>& pairs, const TrialTools& tools,
                const FuzzEvents& events);

}  // namespace dsv4::oracle
