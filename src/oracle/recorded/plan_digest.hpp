/// Digest of everything in a plan that an engine can see.
#pragma once

#include <string>

#include "model/step_plan.hpp"

namespace dsv4::oracle::recorded {

/// Equal for two plans exactly when they give every engine the same run: configuration, content, pages. Where
/// an event stands in its file takes no part, and neither does anything that the plan does not hold:
/// comments, description, expectations.
std::string plan_digest(const RunPlan& plan);

}  // namespace dsv4::oracle::recorded
