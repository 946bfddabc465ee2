#include "io/weight_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "io/checkpoint.hpp"
#include "io/shards.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::size_t kKeptLayers = 4;

std::string shown(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t element) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + 4 * element, sizeof word);
  return word;
}

std::uint16_t half_at(std::span<const std::byte> bytes, std::size_t element) {
  std::uint16_t half = 0;
  std::memcpy(&half, bytes.data() + 2 * element, sizeof half);
  return half;
}

/// The ue8m0 byte of a float32 power of two; empty for every other number.
std::optional<std::uint8_t> power_of_two_byte(std::uint32_t bits) {
  if (bits == 0x00400000U) return std::uint8_t{0};  // 2^-127, subnormal
  const std::uint32_t exponent = bits >> 23;
  if ((bits & 0x007FFFFFU) != 0 || exponent == 0 || exponent > 254) return std::nullopt;
  return static_cast<std::uint8_t>(exponent);
}

/// Reads one layer out of the shards. With `check_only` it looks at names, dtypes and shapes, not at data.
class LayerReader {
 public:
  LayerReader(const Shards& shards, int layer, bool fp8_required, bool check_only)
      : shards_(shards), layer_(layer), fp8_required_(fp8_required), check_only_(check_only) {}

  void matrix(const std::string& short_name, Matrix& out, std::int64_t rows, std::int64_t columns, bool fp8) {
    out.rows = rows;
    out.columns = columns;
    const std::string name = checkpoint_name(layer_, short_name, ".weight");
    const auto weight = require_tensor(name, {rows, columns});
    if (fp8 && weight.tensor->dtype == StDType::f8_e4m3) {
      out.format = Matrix::Format::fp8_block128;
      read_scales(checkpoint_name(layer_, short_name, ".scale"),
                  {blocks_of_128(rows), blocks_of_128(columns)}, out.scales);
      if (!check_only_) out.codes = codes(weight, name);
      return;
    }
    // wo_a enters a bf16 product in any case; the other FP8 linears only where the profile multiplies in
    // bf16.
    if (fp8 && fp8_required_ && short_name != "wo_a") wrong_dtype(weight, name, "F8_E4M3");
    out.format = Matrix::Format::bf16;
    out.bf16 = bf16_values(weight, name);
  }

  void norm(const std::string& short_name, std::vector<std::uint16_t>& out, std::int64_t n) {
    const std::string name = checkpoint_name(layer_, short_name, ".weight");
    out = bf16_values(require_tensor(name, {n}), name);
  }

  void real(const std::string& short_name, std::vector<float>& out, const Shape& shape) {
    const std::string name = checkpoint_name(layer_, short_name, "");
    const auto found = require_tensor(name, shape);
    const bool narrow = found.tensor->dtype == StDType::bf16;
    if (!narrow && found.tensor->dtype != StDType::f32) wrong_dtype(found, name, "F32 or BF16");
    if (check_only_) return;
    out.resize(static_cast<std::size_t>(Tensor::count(shape)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = narrow ? arith::bf16_to_f32(half_at(found.tensor->bytes, i))
                      : arith::from_bits(word_at(found.tensor->bytes, i));
      if (out[i] != out[i]) not_a_number(found, name, i);
    }
  }

 private:
  Shards::Found require_tensor(const std::string& name, const Shape& shape) const {
    const auto found = shards_.find(name);
    if (found.tensor == nullptr) {
      throw FileError(
          fmt::format("{}: there is no tensor '{}' (expected shape {})", found.file, name, shown(shape)));
    }
    if (found.tensor->shape != shape) {
      throw FileError(fmt::format("{}: tensor '{}' has shape {}, expected {}", found.file, found.tensor->name,
                                  shown(found.tensor->shape), shown(shape)));
    }
    return found;
  }

  [[noreturn]] static void wrong_dtype(const Shards::Found& found, const std::string& name,
                                       const char* expected) {
    throw FileError(fmt::format("{}: tensor '{}' is {} {}, expected {}", found.file, name,
                                found.tensor->dtype_text, shown(found.tensor->shape), expected));
  }

  [[noreturn]] static void not_a_number(const Shards::Found& found, const std::string& name,
                                        std::size_t element) {
    throw FileError(fmt::format("{}: tensor '{}' {} holds NaN or infinity at element {}", found.file, name,
                                shown(found.tensor->shape), element));
  }

  static std::vector<std::uint8_t> codes(const Shards::Found& found, const std::string& name) {
    std::vector<std::uint8_t> result(found.tensor->bytes.size());
    std::memcpy(result.data(), found.tensor->bytes.data(), result.size());
    const auto nan = std::ranges::find_if(result, [](std::uint8_t code) { return (code & 0x7F) == 0x7F; });
    if (nan != result.end()) not_a_number(found, name, static_cast<std::size_t>(nan - result.begin()));
    return result;
  }

  void read_scales(const std::string& name, const Shape& shape, std::vector<std::uint8_t>& out) const {
    const auto found = require_tensor(name, shape);
    const bool wide = found.tensor->dtype == StDType::f32;
    if (!wide && found.tensor->dtype != StDType::f8_e8m0)
      wrong_dtype(found, name, "F8_E8M0 or F32 powers of two");
    if (check_only_) return;
    out.resize(static_cast<std::size_t>(Tensor::count(shape)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (wide) {
        const auto byte = power_of_two_byte(word_at(found.tensor->bytes, i));
        if (!byte) {
          throw FileError(fmt::format("{}: tensor '{}' {} holds {} at element {}, which is no power of two",
                                      found.file, name, shown(shape),
                                      arith::from_bits(word_at(found.tensor->bytes, i)), i));
        }
        out[i] = *byte;
      } else {
        out[i] = std::to_integer<std::uint8_t>(found.tensor->bytes[i]);
        if (out[i] == 0xFF) not_a_number(found, name, i);
      }
    }
  }

  /// BF16, or F32 whose every value is a bf16 value.
  std::vector<std::uint16_t> bf16_values(const Shards::Found& found, const std::string& name) const {
    const bool wide = found.tensor->dtype == StDType::f32;
    if (!wide && found.tensor->dtype != StDType::bf16) wrong_dtype(found, name, "BF16 or bf16-exact F32");
    std::vector<std::uint16_t> result;
    if (check_only_) return result;
    result.resize(static_cast<std::size_t>(Tensor::count(found.tensor->shape)));
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (wide) {
        const std::uint32_t bits = word_at(found.tensor->bytes, i);
        result[i] = static_cast<std::uint16_t>(bits >> 16);
        if ((bits & 0xFFFFU) != 0) {
          throw FileError(fmt::format("{}: tensor '{}' {} holds {} at element {}, which bf16 cannot hold",
                                      found.file, name, shown(found.tensor->shape), arith::from_bits(bits),
                                      i));
        }
      } else {
        result[i] = half_at(found.tensor->bytes, i);
      }
      if ((result[i] & 0x7F80) == 0x7F80) not_a_number(found, name, i);
    }
    return result;
  }

  const Shards& shards_;
  int layer_;
  bool fp8_required_;
  bool check_only_;
};

class FileWeights : public WeightSource {
 public:
  FileWeights(const RunConfig& config, const std::vector<std::string>& where, std::vector<int> numbers)
      : config_(config), shards_(where), numbers_(std::move(numbers)), made_(config.layers.size()) {
    for (std::size_t index = 0; index < config_.layers.size(); ++index) {
      refuse_other_kind(index);
      read(index, true);
    }
  }

  std::shared_ptr<const LayerWeights> layer(int index) const override {
    const auto at = static_cast<std::size_t>(index);
    require(at < made_.size(), "weights of a layer outside the run");
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const LayerWeights> weights = made_[at].lock();
    if (!weights) {
      weights = read(at, false);
      made_[at] = weights;
    }
    // A few stay in memory; the others are read again when nobody holds them any more.
    std::erase(kept_, weights);
    kept_.push_back(weights);
    if (kept_.size() > kKeptLayers) kept_.erase(kept_.begin());
    return weights;
  }

 private:
  std::shared_ptr<const LayerWeights> read(std::size_t index, bool check_only) const {
    auto weights = std::make_shared<LayerWeights>();
    const bool fp8_required = config_.profile.get<Linear>() == Linear::fp8_1x128 && !config_.profile.exact;
    visit_weights(*weights, config_.geometry, config_.layers[index],
                  LayerReader(shards_, numbers_[index], fp8_required, check_only));
    return weights;
  }

  /// A layer that has parts which its kind has not is another kind of layer: its number is wrong.
  void refuse_other_kind(std::size_t index) const {
    const LayerKind kind = config_.layers[index];
    const auto refuse = [&](const char* part) {
      const auto found =
          shards_.find(checkpoint_name(numbers_[index], part, part[0] == 'c' ? "" : ".weight"));
      if (found.tensor == nullptr) return;
      throw FileError(
          fmt::format("{}: tensor '{}' shows that layer {} is not {}, the kind of the run's layer {}",
                      found.file, found.tensor->name, numbers_[index], name(kind), index));
    };
    if (!has_compressor(kind)) refuse("compressor.ape");
    if (!has_indexer(kind)) refuse("indexer.weights_proj");
  }

  RunConfig config_;
  Shards shards_;
  std::vector<int> numbers_;
  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<const LayerWeights>> made_;
  mutable std::vector<std::shared_ptr<const LayerWeights>> kept_;  ///< latest use last
};

/// Collects what a layer has as tensors to write; the layer must stay alive until they are written.
class LayerCollector {
 public:
  LayerCollector(int layer, std::vector<StOutput>& out) : layer_(layer), out_(out) {}

  void matrix(const std::string& short_name, const Matrix& matrix, std::int64_t rows, std::int64_t columns,
              bool) {
    const std::string name = checkpoint_name(layer_, short_name, ".weight");
    if (matrix.format == Matrix::Format::bf16) {
      return add(name, StDType::bf16, {rows, columns}, std::as_bytes(std::span(matrix.bf16)));
    }
    add(name, StDType::f8_e4m3, {rows, columns}, std::as_bytes(std::span(matrix.codes)));
    add(checkpoint_name(layer_, short_name, ".scale"), StDType::f8_e8m0,
        {blocks_of_128(rows), blocks_of_128(columns)}, std::as_bytes(std::span(matrix.scales)));
  }
  void norm(const std::string& short_name, const std::vector<std::uint16_t>& bits, std::int64_t n) {
    add(checkpoint_name(layer_, short_name, ".weight"), StDType::bf16, {n}, std::as_bytes(std::span(bits)));
  }
  void real(const std::string& short_name, const std::vector<float>& values, const Shape& shape) {
    add(checkpoint_name(layer_, short_name, ""), StDType::f32, shape, std::as_bytes(std::span(values)));
  }

 private:
  void add(const std::string& name, StDType dtype, Shape shape, std::span<const std::byte> bytes) {
    out_.push_back({name, dtype, std::move(shape), bytes});
  }
  int layer_;
  std::vector<StOutput>& out_;
};

/// One checkpoint number a layer of the run.
std::vector<int> layer_numbers(const RunConfig& config, const std::vector<int>& given) {
  std::vector<int> numbers = given;
  for (int i = 0; numbers.size() < config.layers.size() && given.empty(); ++i) numbers.push_back(i);
  if (numbers.size() != config.layers.size()) {
    throw UsageError(fmt::format("{} checkpoint layers are named for a run of {} layers", numbers.size(),
                                 config.layers.size()));
  }
  return numbers;
}

}  // namespace

std::shared_ptr<const WeightSource> file_weights(const RunConfig& config,
                                                 const std::vector<std::string>& where,
                                                 const std::vector<int>& checkpoint_layers) {
  return std::make_shared<FileWeights>(config, where, layer_numbers(config, checkpoint_layers));
}

void export_weights(const WeightSource& weights, const RunConfig& config, const std::string& path,
                    const std::vector<int>& checkpoint_layers) {
  const std::vector<int> numbers = layer_numbers(config, checkpoint_layers);
  std::vector<std::shared_ptr<const LayerWeights>> layers;
  std::vector<StOutput> tensors;
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    layers.push_back(weights.layer(static_cast<int>(index)));
    visit_weights(*layers.back(), config.geometry, config.layers[index],
                  LayerCollector(numbers[index], tensors));
  }
  write_safetensors(path, std::move(tensors), {{"format", "pt"}});
}

}  // namespace dsv4::io
