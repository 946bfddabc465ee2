/// Which axis values the arithmetic of the reference engine has. One place refuses the others.
#pragma once

#include "model/step_plan.hpp"

namespace dsv4::reference {

/// Throws UsageError naming the axis and its value when this engine has no arithmetic for it: values that
/// belong to other engines' profiles, and the exact profile (wide engine only).
void check_arithmetic(const Profile& profile);

/// The same, and what the profile does not allow beside the run's caches.
void check_arithmetic(const RunConfig& config);

}  // namespace dsv4::reference
