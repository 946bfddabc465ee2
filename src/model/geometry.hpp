/// The shape of DeepSeek-V4 attention: layer kinds, dimensions, presets.
/// Source: contracts of the published config.json (V4-Flash, V4-Pro) and docs/numerics.md section 20.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dsv4 {

/// The three kinds of attention layer; the value is the compression ratio.
enum class LayerKind : std::uint8_t {
  swa = 0,    ///< window only
  csa = 4,    ///< ratio 4, overlapping windows, indexer
  hca = 128,  ///< ratio 128, every compressed entry attended
};

/// "swa", "csa" or "hca".
std::string_view name(LayerKind kind);

/// Tokens per compressed entry; 0 for a window-only layer.
constexpr int ratio(LayerKind kind) { return static_cast<int>(kind); }
constexpr bool has_compressor(LayerKind kind) { return kind != LayerKind::swa; }
constexpr bool has_indexer(LayerKind kind) { return kind == LayerKind::csa; }

/// Fixed by the byte layouts of pages.
inline constexpr int kHeadDim = 512;
inline constexpr int kRopeDim = 64;
inline constexpr int kNopeDim = kHeadDim - kRopeDim;
inline constexpr int kIndexDim = 128;
inline constexpr int kWindow = 128;

/// Every field can be overridden in a scenario within what check() accepts.
struct Geometry {
  int dim = 4096;           ///< D, hidden size
  int q_lora = 1024;        ///< rank of the query latent
  int heads = 64;           ///< H
  int o_groups = 8;         ///< G
  int o_lora = 1024;        ///< output latent a group
  int index_heads = 64;     ///< Hi
  int index_topk = 512;     ///< K
  float eps = 1e-6F;        ///< of every RMS norm
  double rope_theta = 10000.0;             ///< ratio-0 layers, without YaRN
  double compress_rope_theta = 160000.0;   ///< ratio-4 and ratio-128 layers, with YaRN
  double yarn_factor = 16.0;
  std::int64_t yarn_original = 65536;
  double beta_fast = 32.0;
  double beta_slow = 1.0;

  bool operator==(const Geometry&) const = default;
};

/// "v4-flash", "v4-pro" or "tiny"; throws UsageError that lists the presets otherwise.
Geometry geometry_preset(std::string_view preset);

/// Names of the presets.
std::span<const std::string_view> geometry_presets();

/// Throws UsageError naming the field, its value and the rule it breaks: positive sizes; dim, q_lora and
/// o_lora multiples of 128; heads a multiple of o_groups; index_heads and index_topk >= 1; products that
/// overflow; finite positive thetas.
void check(const Geometry& geometry);

/// Channels of a compressor row: `overlap` doubles the width (ratio 4). d is 512 or 128.
constexpr int compressor_channels(LayerKind kind, int d) { return kind == LayerKind::csa ? 2 * d : d; }

}  // namespace dsv4
