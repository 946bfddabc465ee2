// config.json of a checkpoint: geometry and layer kinds, with the published values of V4-Flash and V4-Pro.
#include <filesystem>
#include <fstream>

#include "scenario/model_config.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

constexpr const char* kFlash = R"({
  "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "head_dim": 512, "qk_rope_head_dim": 64,
  "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64,
  "index_head_dim": 128, "index_topk": 512, "rope_theta": 10000, "compress_rope_theta": 160000, "rms_norm_eps": 1e-6,
  "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                   "original_max_position_embeddings": 65536},
  "compress_ratios": [0, 0, 4, 128, 4, 128, 2]
})";

/// A folder of its own that goes away.
class Folder {
 public:
  Folder() {
    path_ = std::filesystem::temp_directory_path() / "dsv4_scenario_model_test";
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

template <class Call>
std::string file_error(const Call& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("geometry and layers of a config.json") {
  const Folder folder;
  const ModelConfig config = read_model_config(folder.write("config.json", kFlash));
  CHECK(config.geometry == geometry_preset("v4-flash"));
  REQUIRE(config.layers.size() == 7);
  CHECK(config.layers[1] == LayerKind::swa);
  CHECK(config.layers[2] == LayerKind::csa);
  CHECK(config.layers[3] == LayerKind::hca);
  CHECK_FALSE(config.layers[6].has_value());
}

TEST_CASE("model: config and layer") {
  const Folder folder;
  folder.write("config.json", kFlash);
  const std::string file = folder.path("s.yaml");
  const auto model = [&](const std::string& keys) {
    return parse_scenario("model: {config: config.json, " + keys + "}\nsteps: [{batch: [{pad: 1}]}]", file)
        .model;
  };
  CHECK(model("layer: 3").layers == std::vector{LayerKind::hca});
  CHECK(model("layer: 3").config_path == folder.path("config.json"));
  CHECK(model("layer: [2, 0]").layers == std::vector{LayerKind::csa, LayerKind::swa});
  CHECK(model("layer: [2, 0]").checkpoint_layers == std::vector{2, 0});
  CHECK(model("layer: 2, index_topk: 16").geometry.index_topk == 16);
  const auto error = [&](const std::string& keys) { return test::usage_error([&] { model(keys); }); };
  CHECK(error("layer: 7") == file + ":1:37: layer 7 is beyond the 7 layers of " + folder.path("config.json"));
  CHECK(error("layer: 6") == file + ":1:37: layer 6 of " + folder.path("config.json") +
                                 " has a compression ratio other than 0, 4 and 128");
  CHECK(error("chain: true") == file + ":1:8: model needs the key 'layer'");
  CHECK(error("layer: 1, preset: tiny") == file + ":1:48: model takes either config or preset, not both");
}

TEST_CASE("configs that cannot be trusted") {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.write("config.json", text);
    std::string message = file_error([&] { read_model_config(path); });
    if (message.starts_with(path)) message = message.substr(path.size());
    return message;
  };
  CHECK(error("{") == ": is not JSON");
  CHECK(error("[]") == ": is not a JSON object");
  CHECK(error(replaced(kFlash, "\"q_lora_rank\": 1024, ", "")) == ": q_lora_rank is missing");
  CHECK(error(replaced(kFlash, "\"head_dim\": 512", "\"head_dim\": 256")) ==
        ": head_dim must be 512, not 256");
  CHECK(error(replaced(kFlash, "\"o_groups\": 8", "\"o_groups\": \"8\"")) ==
        ": o_groups must be an integer, not \"8\"");
  CHECK(error(replaced(kFlash, "\"o_groups\": 8", "\"o_groups\": 7")) ==
        ": model field heads: 64 (must be a multiple of o_groups, 7)");
  CHECK(error(replaced(kFlash, "\"factor\": 16, ", "")) == ": rope_scaling.factor is missing");
  CHECK(error(replaced(kFlash, "[0, 0, 4, 128, 4, 128, 2]", "[]")) ==
        ": compress_ratios must be a list of ratios");
  CHECK(file_error([] { read_model_config("/no/config.json"); }) == "/no/config.json: cannot be read");
}

}  // namespace
}  // namespace dsv4::scenario
