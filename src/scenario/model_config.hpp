/// A published config.json: the geometry of a checkpoint and the kind of each of its layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/geometry.hpp"

namespace dsv4::scenario {

struct ModelConfig {
  Geometry geometry;
  /// From `compress_ratios`; empty for a ratio that V4 attention does not have.
  std::vector<std::optional<LayerKind>> layers;
};

/// Reads a config.json of the Hugging Face form (hidden_size, compress_ratios, rope_scaling ...). Throws
/// FileError naming the file and the key that is missing, has another type, or has a value that the page
/// layouts cannot hold.
ModelConfig read_model_config(const std::string& path);

}  // namespace dsv4::scenario
