/// What `explain` tries on the reference: every known fault with every set of parameters that its entry lists
/// as worth trying, every profile and every value of a single axis. The command line adds models of
/// production kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/engine.hpp"
#include "model/profile.hpp"

namespace dsv4::oracle::explain {

struct Candidate {
  enum class Kind : std::uint8_t {
    fault,
    variation,  ///< of the catalogue, but no fault
    axis,
    profile,
    model,
    axes,  ///< several axes together, found one after the other
  };
  Kind kind = Kind::fault;
  std::string name;      ///< "window-width:width=129", "pooled_rounding=f32", "vllm-fp8"
  std::string family;    ///< what variants of one thing share: the fault's name without parameters
  std::string meaning;   ///< what it does, a sentence without its full stop
  std::string reported;  ///< stage that it is known to change first; empty: not known
  Profile profile;       ///< of the run
  /// Changes the reference; empty: the profile is all. Throws UsageError where it does not apply.
  std::function<std::unique_ptr<Engine>(std::unique_ptr<Engine>, std::shared_ptr<const WeightSource>)> change;
};
std::string_view name(Candidate::Kind kind);

/// Faults and variations for layers of these kinds. `steps` are the values of a parameter that is a step.
std::vector<Candidate> fault_candidates(const Profile& profile, const std::vector<LayerKind>& layers,
                                        const std::vector<std::int64_t>& steps);
/// A fault whose stages are those of one layer; what it does to plans and events stays as it is.
Candidate in_layer(const Candidate& fault, int layer);
/// Single axes of `profile`, each at each of its other values.
std::vector<Candidate> axis_candidates(const Profile& profile);
/// The named profiles, but `exact` and those that are equal to `profile`.
std::vector<Candidate> profile_candidates(const Profile& profile);

}  // namespace dsv4::oracle::explain
