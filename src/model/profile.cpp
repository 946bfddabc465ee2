#include "model/profile.hpp"

#include <algorithm>
#include <vector>

#include "model/error.hpp"

namespace dsv4 {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kLinear[]{"fp8_1x128", "bf16"};
constexpr std::string_view kWoA[]{"bf16", "fp8_1x128"};
constexpr std::string_view kHeadNorm[]{"f32", "bf16", "factor_bf16"};
constexpr std::string_view kRopeTable[]{"f32", "bf16"};
constexpr std::string_view kRopeInput[]{"bf16", "f32"};
constexpr std::string_view kKvCache[]{"e4m3_amax_floor", "e4m3_scale_floor", "release_identity", "bf16",
                                      "f16"};
constexpr std::string_view kPool[]{"f32", "f32_softmax_bf16_sum"};
constexpr std::string_view kPooledRounding[]{"bf16", "f32"};
constexpr std::string_view kNormWeight[]{"then_round", "round_then"};
constexpr std::string_view kIndexRotation[]{"both", "none"};
constexpr std::string_view kIndexCache[]{"fp8", "fp4", "none", "f16"};
constexpr std::string_view kIndexRound[]{"f32", "bf16"};
constexpr std::string_view kSelectOrder[]{"ascending", "descending"};
constexpr std::string_view kSoftmax[]{"two_pass", "online64_bf16_p", "bf16"};
constexpr std::string_view kSinkInMax[]{"no", "yes"};
constexpr std::string_view kListOrder[]{"window_first", "compressed_first", "newest_first"};
constexpr std::string_view kEmptyLse[]{"plus_inf", "minus_inf"};
constexpr std::string_view kOutRotation[]{"bf16", "f32"};
constexpr std::string_view kArithmetic[]{"ieee", "hopper"};
constexpr std::string_view kQRopeInput[]{"bf16", "f32"};
constexpr std::string_view kKvRow[]{"bf16", "window_f32", "f32"};
constexpr std::string_view kCompressProject[]{"f32", "bf16"};
constexpr std::string_view kIndexRow[]{"bf16", "key_f32", "f32"};
constexpr std::string_view kIndexScale[]{"ue8m0", "f32"};
constexpr std::string_view kFp4Rule[]{"nearest_even", "ties_down"};
constexpr std::string_view kActivationFloor[]{"1e-4", "1e-10"};

const std::array<AxisInfo, kAxisCount> kAxes{{
    {Axis::linear, "linear", kLinear},
    {Axis::wo_a, "wo_a", kWoA},
    {Axis::head_norm, "head_norm", kHeadNorm},
    {Axis::rope_table, "rope_table", kRopeTable},
    {Axis::rope_input, "rope_input", kRopeInput},
    {Axis::kv_cache, "kv_cache", kKvCache},
    {Axis::pool, "pool", kPool},
    {Axis::pooled_rounding, "pooled_rounding", kPooledRounding},
    {Axis::norm_weight, "norm_weight", kNormWeight},
    {Axis::index_rotation, "index_rotation", kIndexRotation},
    {Axis::index_cache, "index_cache", kIndexCache},
    {Axis::index_round, "index_round", kIndexRound},
    {Axis::select_order, "select_order", kSelectOrder},
    {Axis::softmax, "softmax", kSoftmax},
    {Axis::sink_in_max, "sink_in_max", kSinkInMax},
    {Axis::list_order, "list_order", kListOrder},
    {Axis::empty_lse, "empty_lse", kEmptyLse},
    {Axis::out_rotation, "out_rotation", kOutRotation},
    {Axis::arithmetic, "arithmetic", kArithmetic},
    {Axis::q_rope_input, "q_rope_input", kQRopeInput},
    {Axis::kv_row, "kv_row", kKvRow},
    {Axis::compress_project, "compress_project", kCompressProject},
    {Axis::index_row, "index_row", kIndexRow},
    {Axis::index_scale, "index_scale", kIndexScale},
    {Axis::fp4_rule, "fp4_rule", kFp4Rule},
    {Axis::activation_floor, "activation_floor", kActivationFloor},
}};

using Changes = std::vector<std::pair<std::string_view, std::string_view>>;

/// A profile as a row of data: its name, whether it is exact, and the axes that differ from canonical.
struct ProfileRow {
  std::string_view name;
  bool exact;
  Changes changes;
};

Changes with(Changes changes, const Changes& more) {
  changes.insert(changes.end(), more.begin(), more.end());
  return changes;
}

Changes vllm() {
  return {{"wo_a", "fp8_1x128"},      {"rope_input", "f32"},          {"pooled_rounding", "f32"},
          {"index_rotation", "none"}, {"softmax", "online64_bf16_p"}, {"out_rotation", "f32"},
          {"q_rope_input", "f32"},    {"activation_floor", "1e-10"}};
}

Changes sglang() {
  return {{"wo_a", "fp8_1x128"},          {"rope_input", "f32"},          {"pooled_rounding", "f32"},
          {"softmax", "online64_bf16_p"}, {"list_order", "newest_first"}, {"kv_row", "window_f32"},
          {"activation_floor", "1e-10"}};
}

const std::vector<ProfileRow>& profile_rows() {
  static const std::vector<ProfileRow> rows{
      {"canonical", false, {}},
      {"official",
       false,
       {{"head_norm", "bf16"},
        {"index_cache", "fp4"},
        {"index_round", "bf16"},
        {"select_order", "descending"},
        {"softmax", "online64_bf16_p"}}},
      {"exact", true, {}},
      {"vllm-fp8", false, vllm()},
      {"vllm-mxfp4", false, with(vllm(), {{"index_cache", "fp4"}})},
      {"sglang-fp8", false, with(sglang(), {{"index_row", "f32"}, {"index_scale", "f32"}})},
      {"sglang-fp4", false,
       with(sglang(), {{"index_cache", "fp4"}, {"index_row", "key_f32"}, {"fp4_rule", "ties_down"}})},
      {"transformers",
       false,
       {{"linear", "bf16"},
        {"head_norm", "factor_bf16"},
        {"rope_table", "bf16"},
        {"kv_cache", "bf16"},
        {"pool", "f32_softmax_bf16_sum"},
        {"norm_weight", "round_then"},
        {"index_rotation", "none"},
        {"index_cache", "none"},
        {"softmax", "bf16"},
        {"sink_in_max", "yes"},
        {"compress_project", "bf16"}}},
      {"ggml",
       false,
       {{"linear", "bf16"},
        {"rope_input", "f32"},
        {"kv_cache", "f16"},
        {"pooled_rounding", "f32"},
        {"index_cache", "f16"},
        {"q_rope_input", "f32"},
        {"kv_row", "f32"},
        {"index_row", "f32"}}},
  };
  return rows;
}

std::string joined(Names names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace

std::span<const AxisInfo> axes() {
  return kAxes;
}

void Profile::set(std::string_view axis_name, std::string_view value) {
  const auto info = std::ranges::find(kAxes, axis_name, &AxisInfo::name);
  if (info == kAxes.end()) {
    std::string known;
    for (const AxisInfo& axis : kAxes) known += (known.empty() ? "" : ", ") + std::string(axis.name);
    throw UsageError("unknown axis '" + std::string(axis_name) + "' (known: " + known + ")");
  }
  const auto found = std::ranges::find(info->values, value);
  if (found == info->values.end()) {
    throw UsageError("axis " + std::string(axis_name) + " has no value '" + std::string(value) +
                     "' (known: " + joined(info->values) + ")");
  }
  values_[static_cast<std::size_t>(info->axis)] = static_cast<std::uint8_t>(found - info->values.begin());
}

std::string_view Profile::value(Axis axis) const {
  const auto index = static_cast<std::size_t>(axis);
  return kAxes[index].values[values_[index]];
}

Profile profile_named(std::string_view name) {
  for (const ProfileRow& row : profile_rows()) {
    if (row.name != name) continue;
    Profile profile;
    profile.name = row.name;
    profile.exact = row.exact;
    for (const auto& [axis, value] : row.changes) profile.set(axis, value);
    return profile;
  }
  throw UsageError("unknown profile '" + std::string(name) + "' (known: " + joined(profile_names()) + ")");
}

std::span<const std::string_view> profile_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const ProfileRow& row : profile_rows()) list.push_back(row.name);
    return list;
  }();
  return names;
}

}  // namespace dsv4
