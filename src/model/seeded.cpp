#include "model/seeded.hpp"

#include <xxhash.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/philox.hpp"
#include "model/seed_edits.hpp"

namespace dsv4 {
namespace {

constexpr int kUHalfRange = 510;
/// f32(1 / sqrt(21845)): u has the deviation sqrt(21845). No power of two, so that products of values made
/// with it need more than the 24 bits of an f32, and a sum shows its order.
constexpr float kUnit = arith::from_bits(0x3BDDB446U);
constexpr std::int64_t kBlock = 128;     // of FP8 weight scales, both ways
constexpr std::int64_t kNormBlock = 64;  // of norm weights that share a power of two
constexpr std::size_t kChunk = 4096;     // elements made at a time
constexpr std::int64_t kKeptBytes = std::int64_t{3} << 30;

std::uint64_t xxh3(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::int32_t u_of(std::uint32_t word) {
  const std::uint32_t pairs = (word & 0x00FF00FFU) + ((word >> 8) & 0x00FF00FFU);
  return static_cast<std::int32_t>((pairs & 0xFFFFU) + (pairs >> 16)) - kUHalfRange;
}

/// The smallest e with 4^e >= k: ceil(log2(k) / 2) on integers.
int half_log2_ceil(std::int64_t k) {
  int e = 0;
  for (std::int64_t power = 1; power < k; power *= 4) ++e;
  return e;
}

/// 2^exponent, exact.
constexpr float power_of_two(int exponent) {
  return arith::from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// out[i] = convert(u of element i) for a whole tensor, in parallel over chunks.
template <class Out, class Convert>
void fill(const SeededStream& stream, std::vector<Out>& out, const Convert& convert) {
  const auto chunks = static_cast<std::int64_t>((out.size() + kChunk - 1) / kChunk);
#pragma omp parallel for schedule(static) if (chunks > 8)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = static_cast<std::size_t>(chunk) * kChunk;
    const std::size_t count = std::min(kChunk, out.size() - first);
    std::array<std::int16_t, kChunk> values;
    stream.u_values(first, std::span(values).first(count));
    for (std::size_t i = 0; i < count; ++i) out[first + i] = convert(values[i]);
  }
}

/// What u becomes, for each of its 1021 values.
template <class Out, class Convert>
std::array<Out, 2 * kUHalfRange + 1> table_of(const Convert& convert) {
  std::array<Out, 2 * kUHalfRange + 1> table{};
  for (int u = -kUHalfRange; u <= kUHalfRange; ++u) {
    table[static_cast<std::size_t>(u + kUHalfRange)] = convert(static_cast<float>(u));
  }
  return table;
}

class SeededHidden final : public HiddenSource {
 public:
  explicit SeededHidden(const RunConfig& config)
      : seed_(config.seed), dim_(config.geometry.dim), edits_(config.seed_edits) {
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      const std::string index = std::to_string(layer);
      const SeededStream stream(seed_, "hidden.outlier/" + index, 0);
      Layer entry{"hidden/" + index, std::vector<float>(static_cast<std::size_t>(dim_))};
      for (std::size_t k = 0; k < entry.factor.size(); ++k) {
        const bool outlier = stream.word(k) % 64 == 0;
        entry.factor[k] = outlier ? 16.0F : 1.0F;
      }
      layers_.push_back(std::move(entry));
    }
  }

  void hidden(int layer, const Row& row, std::span<std::uint16_t> out) const override {
    require(layer >= 0 && static_cast<std::size_t>(layer) < layers_.size(), "seeded hidden: no such layer");
    require(out.size() == static_cast<std::size_t>(dim_), "seeded hidden: a row must hold dim elements");
    const Layer& entry = layers_[static_cast<std::size_t>(layer)];
    const SeededStream stream(seed_, entry.name, row.content);
    std::array<std::int16_t, kChunk> values;
    for (std::size_t first = 0; first < out.size(); first += kChunk) {
      const std::size_t count = std::min(kChunk, out.size() - first);
      stream.u_values(first, std::span(values).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        out[first + i] = arith::f32_to_bf16(static_cast<float>(values[i]) * kUnit * entry.factor[first + i]);
      }
    }
    apply_seed_edits(edits_, layer, out);
  }

 private:
  struct Layer {
    std::string name;
    std::vector<float> factor;  // [dim] f32, a power of two
  };
  std::uint64_t seed_;
  int dim_;
  std::vector<SeedEdit> edits_;
  std::vector<Layer> layers_;
};

/// Makes the tensors of one layer.
class LayerMaker {
 public:
  LayerMaker(std::uint64_t seed, int layer)
      : seed_(seed), prefix_("weights/" + std::to_string(layer) + "/") {}

  LayerWeights make(const Geometry& g, LayerKind kind) const {
    LayerWeights w;
    w.wq_a = fp8("wq_a", g.q_lora, g.dim);
    w.wq_b = fp8("wq_b", std::int64_t{g.heads} * kHeadDim, g.q_lora);
    w.wkv = fp8("wkv", kHeadDim, g.dim);
    w.wo_a = fp8("wo_a", std::int64_t{g.o_groups} * g.o_lora, std::int64_t{g.heads / g.o_groups} * kHeadDim);
    w.wo_b = fp8("wo_b", g.dim, std::int64_t{g.o_groups} * g.o_lora);
    w.q_norm = norm("q_norm", g.q_lora, false);
    w.kv_norm = norm("kv_norm", kHeadDim, true);
    w.attn_sink = scaled("attn_sink", g.heads, -7);
    if (has_compressor(kind)) w.compressor = compressor("compressor.", g, kind, kHeadDim, true);
    if (has_indexer(kind)) {
      w.indexer_wq_b = fp8("indexer.wq_b", std::int64_t{g.index_heads} * kIndexDim, g.q_lora);
      w.indexer_weights_proj = bf16("indexer.weights_proj", g.index_heads, g.dim);
      w.indexer_compressor = compressor("indexer.compressor.", g, kind, kIndexDim, false);
    }
    return w;
  }

 private:
  SeededStream stream(const std::string& name) const { return SeededStream(seed_, prefix_ + name, 0); }

  /// codes = e4m3(u 2^-8); scale byte of block j (row major) = 128 - e(K) + (word j mod 3) - 1.
  Matrix fp8(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    Matrix m{Matrix::Format::fp8_block128, rows, columns, {}, {}, {}};
    m.codes.resize(static_cast<std::size_t>(rows * columns));
    const auto table =
        table_of<std::uint8_t>([](float u) { return arith::f32_to_e4m3(u * power_of_two(-8)); });
    fill(stream(name), m.codes, [&](int u) { return table[static_cast<std::size_t>(u + kUHalfRange)]; });
    const std::int64_t blocks = ((rows + kBlock - 1) / kBlock) * ((columns + kBlock - 1) / kBlock);
    const SeededStream draws = stream(name + ".scale");
    m.scales.resize(static_cast<std::size_t>(blocks));
    for (std::size_t j = 0; j < m.scales.size(); ++j) {
      const int draw = static_cast<int>(draws.word(j) % 3) - 1;
      m.scales[j] = static_cast<std::uint8_t>(128 - half_log2_ceil(columns) + draw);
    }
    return m;
  }

  /// bf16(rn(u unit) 2^-e(K))
  Matrix bf16(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    Matrix m{Matrix::Format::bf16, rows, columns, {}, {}, {}};
    m.bf16.resize(static_cast<std::size_t>(rows * columns));
    const float factor = power_of_two(-half_log2_ceil(columns));
    const auto table = table_of<std::uint16_t>([=](float u) { return arith::f32_to_bf16(u * kUnit * factor); });
    fill(stream(name), m.bf16, [&](int u) { return table[static_cast<std::size_t>(u + kUHalfRange)]; });
    return m;
  }

  /// f32 u 2^exponent, exact.
  std::vector<float> scaled(const std::string& name, std::int64_t count, int exponent) const {
    std::vector<float> out(static_cast<std::size_t>(count));
    const float factor = power_of_two(exponent);
    fill(stream(name), out, [=](int u) { return static_cast<float>(u) * factor; });
    return out;
  }

  /// bf16((1 + u 2^-12) 2^d), d = (word j mod 5) - 2 of `<name>.block` for the 64-wide block j, or 0.
  std::vector<std::uint16_t> norm(const std::string& name, std::int64_t count, bool blocks) const {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(count));
    const SeededStream values = stream(name);
    const SeededStream draws = stream(name + ".block");
    for (std::int64_t i = 0; i < count; ++i) {
      const auto j = static_cast<std::uint32_t>(i / kNormBlock);
      const int d = blocks ? static_cast<int>(draws.word(j) % 5) - 2 : 0;
      const auto u = static_cast<float>(values.u(static_cast<std::uint32_t>(i)));
      out[static_cast<std::size_t>(i)] = arith::f32_to_bf16((1.0F + u * power_of_two(-12)) * power_of_two(d));
    }
    return out;
  }

  CompressorWeights compressor(const std::string& name, const Geometry& g, LayerKind kind, int d,
                               bool norm_blocks) const {
    const int channels = compressor_channels(kind, d);
    CompressorWeights c;
    c.wkv = bf16(name + "wkv", channels, g.dim);
    c.wgate = bf16(name + "wgate", channels, g.dim);
    c.ape = scaled(name + "ape", std::int64_t{ratio(kind)} * channels, -8);
    c.norm = norm(name + "norm", d, norm_blocks);
    return c;
  }

  std::uint64_t seed_;
  std::string prefix_;
};

std::int64_t bytes_of(const Matrix& m) {
  return static_cast<std::int64_t>(m.codes.size() + m.scales.size() + 2 * m.bf16.size());
}
std::int64_t bytes_of(const LayerWeights& w) {
  std::int64_t total = 0;
  for (const Matrix* m :
       {&w.wq_a, &w.wq_b, &w.wkv, &w.wo_a, &w.wo_b, &w.compressor.wkv, &w.compressor.wgate, &w.indexer_wq_b,
        &w.indexer_weights_proj, &w.indexer_compressor.wkv, &w.indexer_compressor.wgate}) {
    total += bytes_of(*m);
  }
  return total;  // the vectors beside them are negligible
}

class SeededWeights final : public WeightSource {
 public:
  explicit SeededWeights(const RunConfig& config)
      : seed_(config.seed), geometry_(config.geometry), kinds_(config.layers), edits_(config.seed_edits) {}

  std::shared_ptr<const LayerWeights> layer(int index) const override {
    require(index >= 0 && static_cast<std::size_t>(index) < kinds_.size(), "seeded weights: no such layer");
    const std::scoped_lock lock(mutex_);
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [=](const Kept& k) { return k.index == index; });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return kept_.front().weights;
    }
    const LayerMaker maker(seed_, index);
    auto made =
        std::make_shared<LayerWeights>(maker.make(geometry_, kinds_[static_cast<std::size_t>(index)]));
    apply_seed_edits(edits_, index, *made);
    kept_.push_front({index, bytes_of(*made), made});
    kept_bytes_ += kept_.front().bytes;
    while (kept_bytes_ > kKeptBytes && kept_.size() > 1) {
      kept_bytes_ -= kept_.back().bytes;
      kept_.pop_back();
    }
    return made;
  }

 private:
  struct Kept {
    int index;
    std::int64_t bytes;
    std::shared_ptr<const LayerWeights> weights;
  };
  std::uint64_t seed_;
  Geometry geometry_;
  std::vector<LayerKind> kinds_;
  std::vector<SeedEdit> edits_;
  mutable std::mutex mutex_;
  mutable std::list<Kept> kept_;  // latest use first
  mutable std::int64_t kept_bytes_ = 0;
};

}  // namespace

SeededStream::SeededStream(std::uint64_t seed, std::string_view tensor_name, std::uint64_t id)
    : id_low_(static_cast<std::uint32_t>(id)), id_high_(static_cast<std::uint32_t>(id >> 32)) {
  const std::uint64_t key = xxh3(tensor_name, seed);
  key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

std::uint32_t SeededStream::word(std::uint64_t element) const {
  return arith::philox4x32_10({static_cast<std::uint32_t>(element / 4), 0, id_low_, id_high_},
                              key_)[element % 4];
}

std::int32_t SeededStream::u(std::uint64_t element) const {
  return u_of(word(element));
}

void SeededStream::u_values(std::uint64_t first, std::span<std::int16_t> out) const {
  require(first % 4 == 0, "u_values starts at a multiple of four");
  const std::size_t whole = out.size() / 4;
  for (std::size_t c = 0; c < whole; ++c) {
    const auto words =
        arith::philox4x32_10({static_cast<std::uint32_t>(first / 4 + c), 0, id_low_, id_high_}, key_);
    out[4 * c + 0] = static_cast<std::int16_t>(u_of(words[0]));
    out[4 * c + 1] = static_cast<std::int16_t>(u_of(words[1]));
    out[4 * c + 2] = static_cast<std::int16_t>(u_of(words[2]));
    out[4 * c + 3] = static_cast<std::int16_t>(u_of(words[3]));
  }
  for (std::size_t i = 4 * whole; i < out.size(); ++i) out[i] = static_cast<std::int16_t>(u(first + i));
}

std::uint64_t content_id(std::string_view request, std::int64_t position, std::int64_t generation) {
  return xxh3(std::string(request) + ":" + std::to_string(position) + ":" + std::to_string(generation), 0);
}

std::uint64_t trace_content_id(std::int64_t hash_id, std::int64_t offset) {
  return xxh3("hash:" + std::to_string(hash_id) + ":" + std::to_string(offset), 0);
}

std::shared_ptr<const HiddenSource> seeded_hidden(const RunConfig& config) {
  return std::make_shared<SeededHidden>(config);
}

std::shared_ptr<const WeightSource> seeded_weights(const RunConfig& config) {
  return std::make_shared<SeededWeights>(config);
}

}  // namespace dsv4
