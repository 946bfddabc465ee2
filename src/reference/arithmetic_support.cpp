#include "reference/arithmetic_support.hpp"

#include <string>

#include "model/error.hpp"

namespace dsv4::reference {
namespace {

struct Unsupported {
  Axis axis;
  std::string_view value;
  std::string_view reason;
};

constexpr Unsupported kUnsupported[]{
    {Axis::kv_cache, "release_identity", "its pages hold no e4m3 codes"},
    {Axis::kv_cache, "bf16", "its pages hold no e4m3 codes"},
    {Axis::pool, "f32_softmax_bf16_sum", "the order of its bf16 sum is not defined"},
    {Axis::index_cache, "none", "its pages hold no codes"},
    {Axis::softmax, "bf16", "the order of its sums is not defined"},
    {Axis::list_order, "compressed_first", "its blocks of 64 list indices are not defined"},
    {Axis::list_order, "newest_first", "its blocks of 64 list indices are not defined"},
    {Axis::out_rotation, "f32", "o_rot is a bf16 tensor of this engine"},
    {Axis::arithmetic, "hopper", "this engine computes in IEEE arithmetic"},
    {Axis::kv_cache, "f16", "its pages hold no e4m3 codes"},
    {Axis::index_cache, "f16", "its pages hold no codes"},
    {Axis::q_rope_input, "f32", "not computed"},
    {Axis::kv_row, "window_f32", "not computed"},
    {Axis::kv_row, "f32", "not computed"},
    {Axis::compress_project, "bf16", "not computed"},
    {Axis::index_row, "key_f32", "not computed"},
    {Axis::index_row, "f32", "not computed"},
    {Axis::index_scale, "f32", "not computed"},
    {Axis::fp4_rule, "ties_down", "not computed"},
    {Axis::activation_floor, "1e-10", "not computed"},
};

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
}

}  // namespace dsv4::reference
