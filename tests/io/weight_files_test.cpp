// Weights: what is exported comes back bit for bit; everything wrong with a checkpoint is named.
#include "io/weight_files.hpp"

#include <cstring>
#include <filesystem>
#include <functional>

#include "io/safetensors.hpp"
#include "model/error.hpp"
#include "model/seeded.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

RunConfig tiny_run() {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named("canonical");
  config.layers = {LayerKind::swa, LayerKind::csa, LayerKind::hca};
  config.seed = 7;
  return config;
}

bool operator_equal(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.rows == b.rows && a.columns == b.columns && a.codes == b.codes &&
         a.scales == b.scales && a.bf16 == b.bf16;
}

bool bits_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

void require_equal(const CompressorWeights& a, const CompressorWeights& b) {
  REQUIRE(operator_equal(a.wkv, b.wkv));
  REQUIRE(operator_equal(a.wgate, b.wgate));
  REQUIRE(bits_equal(a.ape, b.ape));
  REQUIRE(a.norm == b.norm);
}

void require_equal(const LayerWeights& a, const LayerWeights& b) {
  for (const auto member :
       {&LayerWeights::wq_a, &LayerWeights::wq_b, &LayerWeights::wkv, &LayerWeights::wo_a,
        &LayerWeights::wo_b, &LayerWeights::indexer_wq_b, &LayerWeights::indexer_weights_proj}) {
    REQUIRE(operator_equal(a.*member, b.*member));
  }
  REQUIRE(a.q_norm == b.q_norm);
  REQUIRE(a.kv_norm == b.kv_norm);
  REQUIRE(bits_equal(a.attn_sink, b.attn_sink));
  require_equal(a.compressor, b.compressor);
  require_equal(a.indexer_compressor, b.indexer_compressor);
}

/// A tensor of a checkpoint that tests may change.
struct Owned {
  StDType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
using Checkpoint = std::map<std::string, Owned>;

Checkpoint load(const std::string& path) {
  Checkpoint result;
  const SafetensorsFile file(path);
  for (const auto& [name, tensor] : file.tensors()) {
    result[name] = {tensor.dtype, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}};
  }
  return result;
}

void save(const std::string& path, const Checkpoint& checkpoint) {
  std::vector<StOutput> outputs;
  for (const auto& [name, tensor] : checkpoint)
    outputs.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  write_safetensors(path, outputs, {});
}

/// bf16 bits as float32 bits.
void widen(Owned& tensor) {
  std::vector<std::byte> wide(2 * tensor.bytes.size());
  for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i)
    std::memcpy(&wide[4 * i + 2], &tensor.bytes[2 * i], 2);
  tensor = {StDType::f32, tensor.shape, wide};
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("exported weights come back bit for bit") {
  const sample::Folder folder;
  const RunConfig config = tiny_run();
  const auto seeded = seeded_weights(config);
  const std::string path = folder / "w.safetensors";
  export_weights(*seeded, config, path, {3, 10, 41});
  const auto read = file_weights(config, {path}, {3, 10, 41});
  for (int layer = 0; layer < 3; ++layer) require_equal(*seeded->layer(layer), *read->layer(layer));

  // Names as checkpoints have them; the window-only layer has neither compressor nor indexer.
  const Checkpoint checkpoint = load(path);
  for (const char* name : {"layers.3.attn.wq_a.weight", "layers.3.attn.wq_a.scale", "layers.3.attn.attn_sink",
                           "layers.3.attn.q_norm.weight", "layers.10.attn.indexer.wq_b.scale",
                           "layers.10.attn.indexer.weights_proj.weight",
                           "layers.10.attn.indexer.compressor.ape", "layers.41.attn.compressor.norm.weight",
                           "layers.41.attn.compressor.wgate.weight", "layers.41.attn.wo_b.weight"}) {
    INFO(name);
    REQUIRE(checkpoint.contains(name));
  }
  REQUIRE_FALSE(checkpoint.contains("layers.3.attn.compressor.ape"));
  REQUIRE_FALSE(checkpoint.contains("layers.41.attn.indexer.wq_b.weight"));
  REQUIRE(checkpoint.at("layers.10.attn.compressor.ape").shape == std::vector<std::int64_t>{4, 1024});
  REQUIRE(checkpoint.at("layers.41.attn.compressor.ape").shape == std::vector<std::int64_t>{128, 512});
  REQUIRE(checkpoint.at("layers.3.attn.wo_a.weight").shape == std::vector<std::int64_t>{256, 1024});
  REQUIRE(checkpoint.at("layers.3.attn.wo_a.scale").shape == std::vector<std::int64_t>{2, 8});
}

TEST_CASE("shards with an index, a folder with one file and the model prefix are read alike") {
  const sample::Folder folder;
  const RunConfig config = tiny_run();
  const auto seeded = seeded_weights(config);
  export_weights(*seeded, config, folder / "w.safetensors");
  const Checkpoint whole = load(folder / "w.safetensors");
  std::filesystem::create_directories(folder / "sharded");
  Checkpoint shards[2];
  std::string map;
  int turn = 0;
  for (const auto& [name, tensor] : whole) {
    const int shard = turn++ % 2;
    shards[shard]["model." + name] = tensor;
    if (!map.empty()) map += ',';
    map.append("\"model.").append(name).append(shard == 0 ? "\":\"s0.safetensors\"" : "\":\"s1.safetensors\"");
  }
  save(folder / "sharded/s0.safetensors", shards[0]);
  save(folder / "sharded/s1.safetensors", shards[1]);
  sample::put_bytes(folder / "sharded/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const auto sharded = file_weights(config, {folder / "sharded"});
  const auto listed =
      file_weights(config, {folder / "sharded/s1.safetensors", folder / "sharded/s0.safetensors"});
  std::filesystem::create_directories(folder / "single");
  std::filesystem::copy_file(folder / "w.safetensors", folder / "single/any.safetensors");
  const auto single = file_weights(config, {folder / "single"});
  for (int layer = 0; layer < 3; ++layer) {
    require_equal(*seeded->layer(layer), *sharded->layer(layer));
    require_equal(*seeded->layer(layer), *listed->layer(layer));
    require_equal(*seeded->layer(layer), *single->layer(layer));
  }

  REQUIRE(refusal([&] {
            file_weights(config, {folder / "w.safetensors", folder / "single/any.safetensors"});
          }).find("is in ") != std::string::npos);
  std::filesystem::create_directories(folder / "empty");
  REQUIRE(refusal([&] { file_weights(config, {folder / "empty"}); }).find("holds neither") !=
          std::string::npos);
  sample::put_bytes(folder / "sharded/model.safetensors.index.json",
                    "{\"weight_map\":{\"x\":\"../s0.safetensors\"}}");
  REQUIRE(refusal([&] { file_weights(config, {folder / "sharded"}); }).find("leaves the folder") !=
          std::string::npos);
  sample::put_bytes(folder / "sharded/model.safetensors.index.json", "{\"weight_map\":[]}");
  REQUIRE(refusal([&] { file_weights(config, {folder / "sharded"}); }).find("weight_map") !=
          std::string::npos);
  sample::put_bytes(folder / "sharded/model.safetensors.index.json",
                    "{\"weight_map\":{\"layers.0.attn.wq_a.weight\":\"s0.safetensors\"}}");
  REQUIRE(refusal([&] { file_weights(config, {folder / "sharded"}); }).find("the index puts tensor") !=
          std::string::npos);
}

TEST_CASE("wider spellings of the same values are accepted, inexact ones refused") {
  const sample::Folder folder;
  const RunConfig config = tiny_run();
  const auto seeded = seeded_weights(config);
  const std::string path = folder / "w.safetensors";
  export_weights(*seeded, config, path);
  Checkpoint checkpoint = load(path);
  for (const char* name : {"layers.1.attn.q_norm.weight", "layers.1.attn.compressor.wkv.weight",
                           "layers.1.attn.indexer.weights_proj.weight"}) {
    widen(checkpoint.at(name));
  }
  Owned& scale = checkpoint.at("layers.1.attn.wq_b.scale");
  std::vector<std::byte> floats;
  for (const std::byte byte : scale.bytes) {
    const std::uint32_t bits = std::to_integer<std::uint32_t>(byte) << 23;
    floats.resize(floats.size() + 4);
    std::memcpy(&floats[floats.size() - 4], &bits, 4);
  }
  scale = {StDType::f32, scale.shape, floats};
  save(path, checkpoint);
  require_equal(*seeded->layer(1), *file_weights(config, {path})->layer(1));

  // ape is float32; a bf16 one is widened.
  Checkpoint narrow = checkpoint;
  Owned& ape = narrow.at("layers.1.attn.compressor.ape");
  std::vector<std::byte> halves(ape.bytes.size() / 2);
  for (std::size_t i = 0; i < halves.size() / 2; ++i) std::memcpy(&halves[2 * i], &ape.bytes[4 * i + 2], 2);
  ape = {StDType::bf16, ape.shape, halves};
  save(path, narrow);
  const auto widened = file_weights(config, {path})->layer(1);
  std::uint32_t first = 0;
  std::memcpy(&first, widened->compressor.ape.data(), 4);
  std::uint16_t stored = 0;
  std::memcpy(&stored, halves.data(), 2);
  REQUIRE(first == std::uint32_t{stored} << 16);

  Checkpoint inexact = checkpoint;
  inexact.at("layers.1.attn.q_norm.weight").bytes[4] = std::byte{1};
  save(path, inexact);
  REQUIRE(refusal([&] { file_weights(config, {path})->layer(1); }).find("which bf16 cannot hold") !=
          std::string::npos);
  inexact = checkpoint;
  inexact.at("layers.1.attn.wq_b.scale").bytes[5] = std::byte{1};
  save(path, inexact);
  REQUIRE(refusal([&] { file_weights(config, {path})->layer(1); }).find("no power of two") !=
          std::string::npos);
}

TEST_CASE("a missing, misshapen, mistyped or NaN tensor is named") {
  const sample::Folder folder;
  const RunConfig config = tiny_run();
  const std::string path = folder / "w.safetensors";
  export_weights(*seeded_weights(config), config, path);
  const Checkpoint whole = load(path);
  const auto with = [&](const std::string& name, const std::function<void(Owned&)>& change) {
    Checkpoint checkpoint = whole;
    change(checkpoint.at(name));
    save(path, checkpoint);
    return refusal([&] {
      const auto weights = file_weights(config, {path});
      for (int layer = 0; layer < 3; ++layer) weights->layer(layer);
    });
  };
  for (const auto& [name, tensor] : whole) {
    Checkpoint checkpoint = whole;
    checkpoint.erase(name);
    save(path, checkpoint);
    const std::string message = refusal([&] { file_weights(config, {path}); });
    INFO(name << " -> " << message);
    REQUIRE(message.find("there is no tensor '" + name + "' (expected shape [") != std::string::npos);
    REQUIRE(message.find(path) == 0);
  }
  const std::string shape = with("layers.2.attn.wq_b.weight", [](Owned& t) { t.shape = {128, 2048}; });
  REQUIRE(shape == path + ": tensor 'layers.2.attn.wq_b.weight' has shape [128, 2048], expected [2048, 128]");
  // A half-precision norm, by changing the header in place.
  save(path, whole);
  std::string bytes = sample::bytes_of(path);
  const std::size_t at = bytes.find("\"BF16\"", bytes.find("layers.0.attn.q_norm.weight"));
  sample::put_bytes(path, bytes.replace(at, 6, "\"F16\" "));
  REQUIRE(refusal([&] { file_weights(config, {path}); }) ==
          path + ": tensor 'layers.0.attn.q_norm.weight' is F16 [128], expected BF16 or bf16-exact F32");

  struct Poisoned {
    const char* name;
    std::size_t at;
    std::vector<std::uint8_t> bytes;
  };
  for (const Poisoned& poison :
       std::vector<Poisoned>{{"layers.0.attn.wkv.weight", 77, {0xFF}},
                             {"layers.0.attn.wkv.scale", 1, {0xFF}},
                             {"layers.1.attn.compressor.wgate.weight", 10, {0x81, 0x7F}},
                             {"layers.1.attn.kv_norm.weight", 0, {0x80, 0xFF}},
                             {"layers.2.attn.attn_sink", 4, {0, 0, 0xC0, 0x7F}},
                             {"layers.2.attn.compressor.ape", 8, {1, 0, 0x80, 0xFF}}}) {
    const std::string message = with(poison.name, [&](Owned& tensor) {
      for (std::size_t i = 0; i < poison.bytes.size(); ++i)
        tensor.bytes[poison.at + i] = std::byte{poison.bytes[i]};
    });
    INFO(message);
    REQUIRE(message.find(std::string("tensor '") + poison.name) != std::string::npos);
    REQUIRE(message.find("NaN or infinity at element") != std::string::npos);
  }
}

TEST_CASE("a bf16 matrix stands for an FP8 one only where the arithmetic allows it") {
  const sample::Folder folder;
  RunConfig config = tiny_run();
  config.layers = {LayerKind::swa};
  const std::string path = folder / "w.safetensors";
  export_weights(*seeded_weights(config), config, path);
  const Checkpoint whole = load(path);
  const auto in_bf16 = [&](const std::string& name) {
    Checkpoint checkpoint = whole;
    Owned& tensor = checkpoint.at("layers.0.attn." + name + ".weight");
    tensor = {StDType::bf16, tensor.shape, std::vector<std::byte>(2 * tensor.bytes.size(), std::byte{0x3F})};
    checkpoint.erase("layers.0.attn." + name + ".scale");
    save(path, checkpoint);
    return refusal([&] { file_weights(config, {path}); });
  };
  REQUIRE(in_bf16("wo_a") == "accepted");
  REQUIRE(in_bf16("wkv").find("expected F8_E4M3") != std::string::npos);
  config.profile.set("linear", "bf16");
  REQUIRE(in_bf16("wkv") == "accepted");
}

TEST_CASE("a layer number of another kind of layer is refused") {
  const sample::Folder folder;
  RunConfig config = tiny_run();
  const std::string path = folder / "w.safetensors";
  export_weights(*seeded_weights(config), config, path);
  REQUIRE(refusal([&] {
            file_weights(config, {path}, {1, 1, 2});
          }).find("shows that layer 1 is not swa") != std::string::npos);
  REQUIRE(refusal([&] {
            file_weights(config, {path}, {0, 1, 1});
          }).find("shows that layer 1 is not hca") != std::string::npos);
  REQUIRE_THROWS_AS(file_weights(config, {path}, {0, 1}), UsageError);
}
