#include "reference/arithmetic_support.hpp"

#include <string>

#include "model/error.hpp"
#include "reference/slots.hpp"

namespace dsv4::reference {
namespace {

struct Unsupported {
  Axis axis;
  std::string_view value;
  std::string_view reason;
};

constexpr Unsupported kUnsupported[]{
    {Axis::list_order, "compressed_first", "its blocks of 64 list indices are not defined"},
    {Axis::arithmetic, "hopper", "this engine computes in IEEE arithmetic"},
};

/// Values that mean nothing beside a value of another axis.
struct Contradiction {
  Axis axis;
  std::string_view value;
  Axis beside;
  std::string_view needed;
};

constexpr Contradiction kContradictions[]{
    {Axis::out_rotation, "f32", Axis::wo_a, "fp8_1x128"},
    {Axis::q_rope_input, "f32", Axis::head_norm, "f32"},
    {Axis::index_cache, "none", Axis::index_round, "f32"},
    {Axis::index_cache, "f16", Axis::index_round, "f32"},
};

std::string named(Axis axis, std::string_view value) {
  return std::string(axes()[static_cast<std::size_t>(axis)].name) + ": " + std::string(value);
}

}  // namespace

void check_arithmetic(const Profile& profile) {
  if (profile.exact)
    throw UsageError("profile exact: the reference engine has rounding points (use engine wide)");
  for (const Unsupported& entry : kUnsupported) {
    if (profile.value(entry.axis) != entry.value) continue;
    const auto& info = axes()[static_cast<std::size_t>(entry.axis)];
    throw UsageError("axis " + std::string(info.name) + ": the reference engine has no value '" +
                     std::string(entry.value) + "' (" + std::string(entry.reason) + ")");
  }
  for (const Contradiction& entry : kContradictions) {
    if (profile.value(entry.axis) != entry.value || profile.value(entry.beside) == entry.needed) continue;
    throw UsageError("axis " + named(entry.axis, entry.value) + " needs " +
                     named(entry.beside, entry.needed) + " (reference engine)");
  }
}

void check_arithmetic(const RunConfig& config) {
  check_arithmetic(config.profile);
  if (config.profile.get<PoolMode>() == PoolMode::f32) return;
  for (const LayerKind kind : config.layers) {
    if (!online_state(config.cache, kind)) continue;
    throw UsageError("axis " + named(Axis::pool, config.profile.value(Axis::pool)) +
                     ": the online C128 state has its own sum (reference engine)");
  }
}

}  // namespace dsv4::reference
