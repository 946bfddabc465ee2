#include "scenario/model_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/error.hpp"
#include "scenario/read_text.hpp"

namespace dsv4::scenario {
namespace {

using Json = nlohmann::json;

class ConfigReader {
 public:
  ConfigReader(const std::string& path, const Json& object, std::string prefix = "")
      : path_(path), object_(object), prefix_(std::move(prefix)) {}

  const Json& value(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "is missing");
    return *found;
  }

  std::int64_t integer(const char* key) const {
    const Json& number = value(key);
    if (!number.is_number_integer()) fail(key, "must be an integer, not " + number.dump());
    const auto wide = number.get<std::int64_t>();
    if (wide < 1 || wide > (std::int64_t{1} << 40)) fail(key, "is out of range: " + number.dump());
    return wide;
  }

  int size(const char* key) const {
    const std::int64_t wide = integer(key);
    if (wide > (1 << 24)) fail(key, fmt::format("is out of range: {}", wide));
    return static_cast<int>(wide);
  }

  double real(const char* key) const {
    const Json& number = value(key);
    if (!number.is_number()) fail(key, "must be a number, not " + number.dump());
    return number.get<double>();
  }

  /// A field that the layouts fix; it may be absent.
  void fixed(const char* key, int expected) const {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (!found->is_number_integer() || found->get<std::int64_t>() != expected) {
      fail(key, fmt::format("must be {}, not {}", expected, found->dump()));
    }
  }

  [[noreturn]] void fail(const std::string& key, const std::string& fault) const {
    throw FileError(fmt::format("{}: {}{} {}", path_, prefix_, key, fault));
  }

 private:
  const std::string& path_;
  const Json& object_;
  std::string prefix_;
};

Json read_json(const std::string& path) {
  Json json = Json::parse(read_text(path), nullptr, false);
  if (json.is_discarded()) throw FileError(path + ": is not JSON");
  if (!json.is_object()) throw FileError(path + ": is not a JSON object");
  return json;
}

std::optional<LayerKind> kind_of_ratio(std::int64_t ratio) {
  if (ratio == 0) return LayerKind::swa;
  if (ratio == 4) return LayerKind::csa;
  if (ratio == 128) return LayerKind::hca;
  return std::nullopt;
}

}  // namespace

ModelConfig read_model_config(const std::string& path) {
  const Json json = read_json(path);
  const ConfigReader fields(path, json);
  ModelConfig config;
  Geometry& geometry = config.geometry;
  geometry.dim = fields.size("hidden_size");
  geometry.q_lora = fields.size("q_lora_rank");
  geometry.heads = fields.size("num_attention_heads");
  geometry.o_groups = fields.size("o_groups");
  geometry.o_lora = fields.size("o_lora_rank");
  geometry.index_heads = fields.size("index_n_heads");
  geometry.index_topk = fields.size("index_topk");
  geometry.eps = static_cast<float>(fields.real("rms_norm_eps"));
  geometry.rope_theta = fields.real("rope_theta");
  geometry.compress_rope_theta = fields.real("compress_rope_theta");
  fields.fixed("head_dim", kHeadDim);
  fields.fixed("qk_rope_head_dim", kRopeDim);
  fields.fixed("index_head_dim", kIndexDim);
  fields.fixed("sliding_window", kWindow);

  const Json& scaling = fields.value("rope_scaling");
  if (!scaling.is_object()) fields.fail("rope_scaling", "must be an object, not " + scaling.dump());
  const ConfigReader yarn(path, scaling, "rope_scaling.");
  geometry.yarn_factor = yarn.real("factor");
  geometry.yarn_original = yarn.integer("original_max_position_embeddings");
  geometry.beta_fast = yarn.real("beta_fast");
  geometry.beta_slow = yarn.real("beta_slow");

  const Json& ratios = fields.value("compress_ratios");
  if (!ratios.is_array() || ratios.empty()) fields.fail("compress_ratios", "must be a list of ratios");
  for (const Json& ratio : ratios) {
    if (!ratio.is_number_integer()) fields.fail("compress_ratios", "must hold integers, not " + ratio.dump());
    config.layers.push_back(kind_of_ratio(ratio.get<std::int64_t>()));
  }
  try {
    check(geometry);
  } catch (const UsageError& error) {
    throw FileError(fmt::format("{}: {}", path, error.what()));
  }
  return config;
}

}  // namespace dsv4::scenario
