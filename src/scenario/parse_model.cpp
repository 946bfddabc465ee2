#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <limits>
#include <numeric>

#include "model/config_check.hpp"
#include "model/error.hpp"
#include "scenario/model_config.hpp"
#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

LayerKind layer_kind(const YamlReader& reader, const YamlNode& node) {
  constexpr std::array kKinds{LayerKind::swa, LayerKind::csa, LayerKind::hca};
  return kKinds[reader.word(node, "layer kind", {"swa", "csa", "hca"})];
}

/// Overrides single fields; the fixed ones may only be stated.
void override_fields(const YamlReader& reader, const MapReader& map, Geometry& geometry) {
  constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
  const auto size = [&](std::string_view key, int& field) {
    if (const YamlNode* node = map.optional(key)) field = reader.int32(*node, key, 1, kLargest);
  };
  const auto real = [&](std::string_view key, double& field) {
    if (const YamlNode* node = map.optional(key)) field = reader.number(*node, key);
  };
  const auto fixed = [&](std::string_view key, int value) {
    const YamlNode* node = map.optional(key);
    if (node != nullptr && reader.int32(*node, key, 1, kLargest) != value) {
      reader.fail(node->mark,
                  fmt::format("{} is fixed by the page layouts: {}, not {}", key, value, node->text));
    }
  };
  size("dim", geometry.dim);
  size("q_lora", geometry.q_lora);
  size("heads", geometry.heads);
  size("o_groups", geometry.o_groups);
  size("o_lora", geometry.o_lora);
  size("index_heads", geometry.index_heads);
  size("index_topk", geometry.index_topk);
  real("rope_theta", geometry.rope_theta);
  real("compress_rope_theta", geometry.compress_rope_theta);
  real("yarn_factor", geometry.yarn_factor);
  real("beta_fast", geometry.beta_fast);
  real("beta_slow", geometry.beta_slow);
  if (const YamlNode* eps = map.optional("eps"))
    geometry.eps = static_cast<float>(reader.number(*eps, "eps"));
  if (const YamlNode* original = map.optional("yarn_original")) {
    geometry.yarn_original = reader.integer(*original, "yarn_original", 1, std::int64_t{1} << 40);
  }
  fixed("head_dim", kHeadDim);
  fixed("rope_dim", kRopeDim);
  fixed("index_dim", kIndexDim);
  fixed("window", kWindow);
}

std::vector<LayerKind> layer_kinds(const YamlReader& reader, const YamlNode& node) {
  std::vector<LayerKind> kinds;
  for (const YamlNode& item : reader.list(node, "layers")) kinds.push_back(layer_kind(reader, item));
  if (kinds.empty() || kinds.size() > kMaxLayers) {
    reader.fail(node.mark, fmt::format("layers must list 1 to {} layers, not {}", kMaxLayers, kinds.size()));
  }
  return kinds;
}

/// `layer: 3` or `layer: [2, 3]`.
std::vector<int> layer_numbers(const YamlReader& reader, const YamlNode& node) {
  std::vector<int> numbers;
  if (node.kind == YamlNode::Kind::list) {
    for (const YamlNode& item : node.items) numbers.push_back(reader.int32(item, "layer", 0, 4095));
    if (numbers.empty() || numbers.size() > kMaxLayers) {
      reader.fail(node.mark,
                  fmt::format("layer must list 1 to {} layers, not {}", kMaxLayers, numbers.size()));
    }
  } else {
    numbers.push_back(reader.int32(node, "layer", 0, 4095));
  }
  return numbers;
}

void take_config(const YamlReader& reader, const MapReader& map, const YamlNode& config, Model& model) {
  for (const std::string_view key : {"preset", "layers"}) {
    if (const YamlNode* node = map.optional(key)) {
      reader.fail(node->mark, fmt::format("model takes either config or {}, not both", key));
    }
  }
  model.config_path = resolve_path(reader, reader.text(config, "config"));
  const YamlNode& layer = map.required("layer");
  model.checkpoint_layers = layer_numbers(reader, layer);
  const ModelConfig file = read_model_config(model.config_path);
  model.geometry = file.geometry;
  for (const int number : model.checkpoint_layers) {
    if (static_cast<std::size_t>(number) >= file.layers.size()) {
      reader.fail(layer.mark, fmt::format("layer {} is beyond the {} layers of {}", number,
                                          file.layers.size(), model.config_path));
    }
    const auto kind = file.layers[static_cast<std::size_t>(number)];
    if (!kind) {
      reader.fail(layer.mark, fmt::format("layer {} of {} has a compression ratio other than 0, 4 and 128",
                                          number, model.config_path));
    }
    model.layers.push_back(*kind);
  }
}

void take_preset(const YamlReader& reader, const MapReader& map, Model& model) {
  if (const YamlNode* preset = map.optional("preset")) {
    try {
      model.geometry = geometry_preset(reader.text(*preset, "preset"));
    } catch (const UsageError& error) {
      reader.fail(preset->mark, error.what());
    }
  }
  if (const YamlNode* layers = map.optional("layers")) model.layers = layer_kinds(reader, *layers);
  if (const YamlNode* layer = map.optional("layer")) {
    model.checkpoint_layers = layer_numbers(reader, *layer);
    if (model.checkpoint_layers.size() != model.layers.size()) {
      reader.fail(layer->mark,
                  fmt::format("layer must name one checkpoint layer for each of the {} layers, not {}",
                              model.layers.size(), model.checkpoint_layers.size()));
    }
  } else {
    model.checkpoint_layers.resize(model.layers.size());
    std::iota(model.checkpoint_layers.begin(), model.checkpoint_layers.end(), 0);
  }
}

}  // namespace

std::string resolve_path(const YamlReader& reader, const std::string& path) {
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  const std::filesystem::path folder = std::filesystem::path(reader.file()).parent_path();
  return (folder / given).lexically_normal().string();
}

Model parse_model(const YamlReader& reader, const YamlNode* node) {
  Model model;
  model.geometry = geometry_preset("tiny");
  model.layers = {LayerKind::swa, LayerKind::csa, LayerKind::hca};
  model.checkpoint_layers = {0, 1, 2};
  if (node == nullptr) return model;
  const MapReader map(reader, *node, "model",
                      {"preset",      "layers",        "chain",     "config",     "layer",
                       "dim",         "q_lora",        "heads",     "o_groups",   "o_lora",
                       "index_heads", "index_topk",    "eps",       "rope_theta", "compress_rope_theta",
                       "yarn_factor", "yarn_original", "beta_fast", "beta_slow",  "head_dim",
                       "rope_dim",    "index_dim",     "window"});
  if (const YamlNode* config = map.optional("config")) {
    model.layers.clear();
    take_config(reader, map, *config, model);
  } else {
    take_preset(reader, map, model);
  }
  override_fields(reader, map, model.geometry);
  if (const YamlNode* chain = map.optional("chain")) model.chain = reader.boolean(*chain, "chain");
  try {
    check(model.geometry);
  } catch (const UsageError& error) {
    reader.fail(node->mark, error.what());
  }
  return model;
}

}  // namespace dsv4::scenario
