/// Observations made by hand for the file tests: every dtype, special values, several steps and layers.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/config_check.hpp"
#include "model/digest.hpp"
#include "model/observation.hpp"

namespace dsv4::io::sample {

/// A folder of its own that goes away with the object.
class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("dsv4-io-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <class T>
Tensor tensor(DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  Tensor result(dtype, std::move(shape));
  const auto out = result.template as<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = values[i % values.size()];
  return result;
}

/// Elements that differ from each other: a small multiplicative generator; wider than a byte: finite floats.
template <class T>
Tensor noise(DType dtype, std::vector<std::int64_t> shape, std::uint64_t seed) {
  Tensor result(dtype, std::move(shape));
  std::uint64_t word = seed * 2654435761U + 12345;
  for (T& element : result.template as<T>()) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    element = static_cast<T>((word >> 33) & (sizeof(T) == 2 ? 0x3FFFU : 0x3FFFFFFFU));
  }
  return result;
}

/// Different int32 indices below a limit.
inline Tensor below(std::int64_t count, std::int32_t limit, std::uint64_t seed) {
  Tensor result = noise<std::uint32_t>(DType::int32, {count}, seed);
  for (std::int32_t& element : result.as<std::int32_t>()) element %= limit;
  return result;
}

inline SourceInfo source() {
  SourceInfo info;
  info.engine = "reference";
  info.device = "cpu";
  info.scenario = "name: sample\n# \xC3\xA9\n";
  info.config.geometry = geometry_preset("tiny");
  info.config.profile = profile_named("official");
  info.config.profile.set("pool", "f32_softmax_bf16_sum");
  info.config.layers = {LayerKind::swa, LayerKind::csa, LayerKind::hca};
  info.config.chain = true;
  info.config.cache.c4_state = C4State::page4align;
  info.config.cache.c128_state = C128State::online;
  info.config.cache.draft_rows = 3;
  info.config.cache.allocate = Allocate::lifo;
  info.config.cache.swa_release = SwaRelease::never;
  info.config.cache.poison_freed = true;
  info.config.cache.pitch = 576 * 70;
  info.config.seed = 0xFEDCBA9876543210U;
  info.config.pool_pages = {5, 6, 7, 8, 9, 10, 111};
  info.config.state_bases = 4;
  info.config.requests = {"a", "a longer name", "a"};
  return info;
}

/// `tokens` rows; with 512 tokens and more some tensors are chunked.
inline StepObservation step(std::int64_t number, std::int64_t tokens) {
  StepObservation result;
  result.step = number;
  result.event = "{\"prefill\":{\"request\":\"a\",\"tokens\":" + std::to_string(tokens) + "}}";
  const auto seed = static_cast<std::uint64_t>(number + 1);
  result.batch.request = Tensor(DType::int32, {tokens});
  result.batch.position = below(tokens, kMaxTokens, seed);
  result.batch.slot = below(tokens, 5 * 64, seed + 1);
  result.batch.page = below(tokens, 5, seed + 2);
  result.batch.prefix = tensor<std::int32_t>(DType::int32, {1, 3}, {1, 0, 128});
  result.layers.resize(3);
  for (LayerObservation& layer : result.layers) {
    layer.tensors[TensorId::hidden] = noise<std::uint16_t>(DType::bfloat16, {tokens, 256}, seed + 3);
    layer.tensors[TensorId::q] = noise<std::uint16_t>(DType::bfloat16, {tokens, 4, 512}, seed + 4);
    layer.tensors[TensorId::window_codes] =
        noise<std::uint8_t>(DType::float8_e4m3fn, {tokens, 448}, seed + 5);
    layer.tensors[TensorId::window_scales] =
        noise<std::uint8_t>(DType::float8_e8m0fnu, {tokens, 7}, seed + 6);
    layer.state_digests[Cache::window] = digest(layer.tensors[TensorId::q].bytes());
  }
  LayerObservation& csa = result.layers[1];
  csa.tensors[TensorId::query_codes] =
      tensor<std::uint8_t>(DType::float4_e2m1fn, {tokens, 4, 128}, {0, 7, 8, 15});
  csa.tensors[TensorId::scores] = tensor<std::uint32_t>(
      DType::float32, {tokens, 5}, {0x7F800000U, 0xFF800000U, 0x80000000U, 0x00000001U, 0x3F800000U});
  csa.tensors[TensorId::compress_pooled] = Tensor(DType::float32, {0, 512});
  csa.tensors[TensorId::selected] = tensor<std::int32_t>(DType::int32, {tokens, 8}, {-1, 0, kMaxTokens});
  csa.unrounded[TensorId::q] = tensor<double>(DType::float64, {tokens, 4, 512}, {0.1, -0.0, 5e-324, 1e300});
  csa.state_digests[Cache::index_state] = std::string(32, 'a');
  csa.state_tensors["swa_pages"] = noise<std::uint8_t>(DType::uint8, {3, 37440}, seed + 7);
  csa.state_tensors["indexer_state_kv"] = noise<std::uint32_t>(DType::float32, {16, 256}, seed + 8);
  return result;
}

}  // namespace dsv4::io::sample
