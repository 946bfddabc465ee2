/// The known faults by name: what goes wrong, where it must be reported first, the smallest scenario that
/// shows it. docs/faults.md is this table in words.
///
/// A fault is named NAME[:key=value,...]; bitflip:TENSOR[:element[:bit]] flips one bit of a published tensor.
/// Unknown names, parameters and engines are UsageErrors that name the nearest known ones.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/faults/bytes.hpp"
#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

enum class Family : std::uint8_t {
  state,
  pool,
  finish,
  bytes,
  index,
  selection,
  lists,
  attention,
  lifecycle
};
std::string_view name(Family family);

struct FaultInfo {
  std::string_view name;
  std::string_view number;  ///< MU01 .. MU30, NC1 .. NC5; empty for others
  Family family;
  std::string_view field;     ///< what goes wrong in real implementations, one sentence
  std::string_view reported;  ///< stage reported first; "state" or "writes" for what an event did
  std::string_view scenario;  ///< the smallest one that shows it, tests/faults/scenarios/NAME.yaml
  std::string_view example;   ///< parameters with which it does; empty: the standard ones
  void (*install)(FaultyEngine& subject, const Parameters& parameters);
  std::span<const ParameterInfo> parameters = {};
  bool by_effect = false;         ///< the mechanism does not exist in our engines; its effect is put in
  bool recomputes = false;        ///< in canonical arithmetic, so other profiles are refused
  std::string_view verdict = {};  ///< of a negative control: the verdict it must get; empty for faults
  /// What `explain` cannot tell from it on that scenario, because the bits are the same: "a, b".
  std::string_view alike = {};
};

/// In the order of their numbers, then the controls.
std::span<const FaultInfo> catalogue();
/// Engines that a fault can be put into.
std::span<const std::string_view> engines();

/// A fault as asked for.
struct Injection {
  const FaultInfo* fault = nullptr;  ///< null: a bit flip
  Parameters parameters;
  BitFlip flip;
  std::string text;
};
Injection parse_injection(std::string_view text);

/// The engine with the fault in it. Throws UsageError if the engine or its profile is none that the fault
/// applies to.
std::unique_ptr<FaultyEngine> inject(std::unique_ptr<Engine> engine,
                                     std::shared_ptr<const WeightSource> weights, const Injection& injection);

/// docs/faults.md.
std::string markdown();

}  // namespace dsv4::oracle::faults
