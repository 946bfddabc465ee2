/// Which axis values the arithmetic of the reference engine has. One place refuses the others.
#pragma once

#include "model/profile.hpp"

namespace dsv4::reference {

/// Throws UsageError naming the axis and its value when this engine has no arithmetic for it: values that
/// belong to other engines' profiles, and the exact profile (wide engine only).
void check_arithmetic(const Profile& profile);

}  // namespace dsv4::reference
