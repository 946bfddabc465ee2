/// Numeric profiles: named sets of choices ("axes", docs/numerics.md section 17). Axes are data: a scenario may
/// override single ones, a new profile is one more row of a table.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dsv4 {

enum class Axis : std::uint8_t {
  linear,
  wo_a,
  head_norm,
  rope_table,
  rope_input,
  kv_cache,
  pool,
  pooled_rounding,
  norm_weight,
  index_rotation,
  index_cache,
  index_round,
  select_order,
  softmax,
  sink_in_max,
  list_order,
  empty_lse,
  out_rotation,
  arithmetic,
  q_rope_input,
  kv_row,
  compress_project,
  index_row,
  index_scale,
  fp4_rule,
  activation_floor,
};
inline constexpr std::size_t kAxisCount = 26;

/// The values of each axis; the enumerator's number is the index into AxisInfo::values.
enum class Linear : std::uint8_t { fp8_1x128, bf16 };
enum class WoA : std::uint8_t { bf16, fp8_1x128 };
enum class HeadNorm : std::uint8_t { f32, bf16, factor_bf16 };
enum class RopeTable : std::uint8_t { f32, bf16 };
enum class RopeInput : std::uint8_t { bf16, f32 };
enum class KvCache : std::uint8_t { e4m3_amax_floor, e4m3_scale_floor, release_identity, bf16, f16 };
enum class PoolMode : std::uint8_t { f32, f32_softmax_bf16_sum };
enum class PooledRounding : std::uint8_t { bf16, f32 };
enum class NormWeight : std::uint8_t { then_round, round_then };
enum class IndexRotation : std::uint8_t { both, none };
enum class IndexCache : std::uint8_t { fp8, fp4, none, f16 };
enum class IndexRound : std::uint8_t { f32, bf16 };
enum class SelectOrder : std::uint8_t { ascending, descending };
enum class Softmax : std::uint8_t { two_pass, online64_bf16_p, bf16 };
enum class SinkInMax : std::uint8_t { no, yes };
enum class ListOrder : std::uint8_t { window_first, compressed_first, newest_first };
enum class EmptyLse : std::uint8_t { plus_inf, minus_inf };
enum class OutRotation : std::uint8_t { bf16, f32 };
enum class Arithmetic : std::uint8_t { ieee, hopper };
enum class QRopeInput : std::uint8_t { bf16, f32 };
enum class KvRow : std::uint8_t { bf16, window_f32, f32 };
enum class CompressProject : std::uint8_t { f32, bf16 };
enum class IndexRow : std::uint8_t { bf16, key_f32, f32 };
enum class IndexScale : std::uint8_t { ue8m0, f32 };
enum class Fp4Rule : std::uint8_t { nearest_even, ties_down };
enum class ActivationFloor : std::uint8_t { f1e4, f1e10 };

struct AxisInfo {
  Axis axis;
  std::string_view name;
  std::span<const std::string_view> values;  ///< the first is the canonical one
};

/// All axes in the order of the enum.
std::span<const AxisInfo> axes();

/// A choice on every axis.
class Profile {
 public:
  std::string name = "canonical";
  /// True for the mathematical definition: no rounding point and no quantisation (wide engine only).
  bool exact = false;

  template <class Value>
  Value get() const;

  /// Sets an axis by its public names; throws UsageError that lists what is known.
  void set(std::string_view axis_name, std::string_view value);
  std::string_view value(Axis axis) const;

  bool operator==(const Profile&) const = default;

 private:
  std::array<std::uint8_t, kAxisCount> values_{};
};

/// By name (docs/profiles.md); throws UsageError that lists the profiles otherwise.
Profile profile_named(std::string_view name);
std::span<const std::string_view> profile_names();

namespace detail {
template <class Value> inline constexpr Axis kAxisOf = Axis{};
template <> inline constexpr Axis kAxisOf<Linear> = Axis::linear;
template <> inline constexpr Axis kAxisOf<WoA> = Axis::wo_a;
template <> inline constexpr Axis kAxisOf<HeadNorm> = Axis::head_norm;
template <> inline constexpr Axis kAxisOf<RopeTable> = Axis::rope_table;
template <> inline constexpr Axis kAxisOf<RopeInput> = Axis::rope_input;
template <> inline constexpr Axis kAxisOf<KvCache> = Axis::kv_cache;
template <> inline constexpr Axis kAxisOf<PoolMode> = Axis::pool;
template <> inline constexpr Axis kAxisOf<PooledRounding> = Axis::pooled_rounding;
template <> inline constexpr Axis kAxisOf<NormWeight> = Axis::norm_weight;
template <> inline constexpr Axis kAxisOf<IndexRotation> = Axis::index_rotation;
template <> inline constexpr Axis kAxisOf<IndexCache> = Axis::index_cache;
template <> inline constexpr Axis kAxisOf<IndexRound> = Axis::index_round;
template <> inline constexpr Axis kAxisOf<SelectOrder> = Axis::select_order;
template <> inline constexpr Axis kAxisOf<Softmax> = Axis::softmax;
template <> inline constexpr Axis kAxisOf<SinkInMax> = Axis::sink_in_max;
template <> inline constexpr Axis kAxisOf<ListOrder> = Axis::list_order;
template <> inline constexpr Axis kAxisOf<EmptyLse> = Axis::empty_lse;
template <> inline constexpr Axis kAxisOf<OutRotation> = Axis::out_rotation;
template <> inline constexpr Axis kAxisOf<Arithmetic> = Axis::arithmetic;
template <> inline constexpr Axis kAxisOf<QRopeInput> = Axis::q_rope_input;
template <> inline constexpr Axis kAxisOf<KvRow> = Axis::kv_row;
template <> inline constexpr Axis kAxisOf<CompressProject> = Axis::compress_project;
template <> inline constexpr Axis kAxisOf<IndexRow> = Axis::index_row;
template <> inline constexpr Axis kAxisOf<IndexScale> = Axis::index_scale;
template <> inline constexpr Axis kAxisOf<Fp4Rule> = Axis::fp4_rule;
template <> inline constexpr Axis kAxisOf<ActivationFloor> = Axis::activation_floor;
}  // namespace detail

template <class Value>
Value Profile::get() const {
  return static_cast<Value>(values_[static_cast<std::size_t>(detail::kAxisOf<Value>)]);
}

}  // namespace dsv4
