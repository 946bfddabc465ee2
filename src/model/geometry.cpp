#include "model/geometry.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include "model/error.hpp"

namespace dsv4 {
namespace {

constexpr std::array<std::string_view, 3> kPresets{"tiny", "v4-flash", "v4-pro"};

[[noreturn]] void refuse(std::string_view field, const std::string& value, std::string_view rule) {
  throw UsageError("model field " + std::string(field) + ": " + value + " (" + std::string(rule) + ")");
}

void check_size(std::string_view field, int value, int multiple, int largest) {
  if (value < 1 || value > largest) {
    refuse(field, std::to_string(value), "must be 1 to " + std::to_string(largest));
  }
  if (value % multiple != 0) {
    refuse(field, std::to_string(value), "must be a multiple of " + std::to_string(multiple));
  }
}

void check_positive(std::string_view field, double value) {
  if (!(value > 0) || !std::isfinite(value)) refuse(field, std::to_string(value), "must be finite and positive");
}

}  // namespace

std::string_view name(LayerKind kind) {
  return kind == LayerKind::swa ? "swa" : kind == LayerKind::csa ? "csa" : "hca";
}

Geometry geometry_preset(std::string_view preset) {
  Geometry geometry;  // the defaults are V4-Flash
  if (preset == "v4-flash") return geometry;
  if (preset == "v4-pro") {
    geometry.dim = 7168;
    geometry.q_lora = 1536;
    geometry.heads = 128;
    geometry.o_groups = 16;
    geometry.index_topk = 1024;
    return geometry;
  }
  if (preset == "tiny") {
    geometry.dim = 256;
    geometry.q_lora = 128;
    geometry.heads = 4;
    geometry.o_groups = 2;
    geometry.o_lora = 128;
    geometry.index_heads = 4;
    geometry.index_topk = 8;
    return geometry;
  }
  throw UsageError("unknown preset '" + std::string(preset) + "' (known: tiny, v4-flash, v4-pro)");
}

std::span<const std::string_view> geometry_presets() { return kPresets; }

void check(const Geometry& g) {
  constexpr int kLargest = 1 << 20;
  check_size("dim", g.dim, 128, kLargest);
  check_size("q_lora", g.q_lora, 128, kLargest);
  check_size("o_lora", g.o_lora, 128, kLargest);
  check_size("heads", g.heads, 1, 4096);
  check_size("o_groups", g.o_groups, 1, 4096);
  check_size("index_heads", g.index_heads, 1, 4096);
  check_size("index_topk", g.index_topk, 1, kLargest);
  if (g.heads % g.o_groups != 0) {
    refuse("heads", std::to_string(g.heads), "must be a multiple of o_groups, " + std::to_string(g.o_groups));
  }
  constexpr std::int64_t kLargestMatrix = std::int64_t{1} << 33;
  const auto check_matrix = [&](std::string_view field, std::int64_t rows, std::int64_t columns) {
    if (rows * columns > kLargestMatrix) {
      refuse(field, std::to_string(rows) + " x " + std::to_string(columns), "weight matrix above 2^33 elements");
    }
  };
  check_matrix("heads", std::int64_t{g.heads} * kHeadDim, g.q_lora);
  check_matrix("o_groups", std::int64_t{g.o_groups} * g.o_lora, g.dim);
  check_matrix("dim", g.dim, g.q_lora);
  check_positive("eps", g.eps);
  check_positive("rope_theta", g.rope_theta);
  check_positive("compress_rope_theta", g.compress_rope_theta);
  check_positive("yarn_factor", g.yarn_factor);
  if (g.yarn_original < 1 || g.yarn_original > std::int64_t{1} << 40) {
    refuse("yarn_original", std::to_string(g.yarn_original), "must be 1 to 2^40");
  }
  check_positive("beta_fast", g.beta_fast);
  check_positive("beta_slow", g.beta_slow);
}

}  // namespace dsv4
