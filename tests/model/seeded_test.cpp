// Seeded data (docs/numerics.md sections 19 and 20) against a literal loop: Random123 for the generator,
// xxHash for the keys, double arithmetic for the values.
#include "model/seeded.hpp"

#include <Random123/philox.h>
#include <fmt/core.h>
#include <xxhash.h>

#include <cmath>
#include <string>

#include "support/catch.hpp"

using namespace dsv4;

namespace {

std::uint32_t literal_word(std::uint64_t seed, const std::string& name, std::uint64_t id,
                           std::uint32_t element) {
  const std::uint64_t key = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  r123::Philox4x32 philox;
  const auto words = philox(
      {{element / 4, 0, static_cast<std::uint32_t>(id & 0xFFFFFFFFU), static_cast<std::uint32_t>(id >> 32)}},
      {{static_cast<std::uint32_t>(key & 0xFFFFFFFFU), static_cast<std::uint32_t>(key >> 32)}});
  return words[element % 4];
}

int literal_u(std::uint64_t seed, const std::string& name, std::uint64_t id, std::uint32_t element) {
  const std::uint32_t w = literal_word(seed, name, id, element);
  return static_cast<int>((w & 255U) + (w >> 8 & 255U) + (w >> 16 & 255U) + (w >> 24)) - 510;
}

/// Nearest even to `mantissa_bits` behind the leading bit, subnormals below 2^min_exponent; in double, exact.
double literal_round(double x, int mantissa_bits, int min_exponent) {
  if (x == 0.0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent - 1, min_exponent) - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
}

/// rn(u * f32(1 / sqrt(21845))) to f32; the product of a 10-bit and a 24-bit integer is exact in double.
double literal_unit(int u) {
  const double unit = std::ldexp(std::nearbyint(std::ldexp(1.0 / std::sqrt(21845.0), 31)), -31);  // in [2^-8, 2^-7)
  return literal_round(u * unit, 23, -126);
}

double bf16_value(std::uint16_t bits) {
  const int field = bits >> 7 & 255;
  const int mantissa = bits & 127;
  const double magnitude = field == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, field - 134);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}
double e4m3_value(std::uint8_t code) {
  const int field = code >> 3 & 15;
  const int mantissa = code & 7;
  const double magnitude = field == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, field - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

/// ceil(log2(k) / 2) by counting.
int literal_e(std::int64_t k) {
  int log2 = 0;
  while ((std::int64_t{1} << log2) < k) ++log2;
  return (log2 + 1) / 2;
}

RunConfig config(std::uint64_t seed) {
  RunConfig c;
  c.geometry = geometry_preset("tiny");
  c.geometry.dim = 384;  // e(384) = 5: a length that is no power of two
  c.geometry.q_lora = 256;
  c.layers = {LayerKind::csa, LayerKind::hca, LayerKind::swa};
  c.seed = seed;
  return c;
}

std::uint64_t elements_checked = 0;

void check_fp8(const Matrix& m, std::uint64_t seed, const std::string& name, std::int64_t rows,
               std::int64_t columns) {
  INFO(name);
  REQUIRE(m.format == Matrix::Format::fp8_block128);
  REQUIRE(m.rows == rows);
  REQUIRE(m.columns == columns);
  REQUIRE(m.codes.size() == static_cast<std::size_t>(rows * columns));
  REQUIRE(m.scales.size() == static_cast<std::size_t>((rows + 127) / 128 * ((columns + 127) / 128)));
  bool same = true;
  for (std::uint32_t i = 0; i < m.codes.size(); ++i) {
    same = same && e4m3_value(m.codes[i]) == literal_round(literal_u(seed, name, 0, i) / 256.0, 3, -6);
  }
  for (std::uint32_t j = 0; j < m.scales.size(); ++j) {
    const int draw = static_cast<int>(literal_word(seed, name + ".scale", 0, j) % 3) - 1;
    same = same && m.scales[j] == 128 - literal_e(columns) + draw;
  }
  elements_checked += m.codes.size() + m.scales.size();
  REQUIRE(same);
}

void check_bf16(const Matrix& m, std::uint64_t seed, const std::string& name, std::int64_t rows,
                std::int64_t columns) {
  INFO(name);
  REQUIRE(m.format == Matrix::Format::bf16);
  REQUIRE(m.rows == rows);
  REQUIRE(m.columns == columns);
  REQUIRE(m.bf16.size() == static_cast<std::size_t>(rows * columns));
  bool same = true;
  for (std::uint32_t i = 0; i < m.bf16.size(); ++i) {
    const double value = std::ldexp(literal_unit(literal_u(seed, name, 0, i)), -literal_e(columns));
    same = same && bf16_value(m.bf16[i]) == literal_round(value, 7, -126);
  }
  elements_checked += m.bf16.size();
  REQUIRE(same);
}

void check_norm(const std::vector<std::uint16_t>& values, std::uint64_t seed, const std::string& name,
                std::size_t count, bool blocks) {
  INFO(name);
  REQUIRE(values.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const int d = blocks ? static_cast<int>(literal_word(seed, name + ".block", 0, i / 64) % 5) - 2 : 0;
    const double value = std::ldexp(1.0 + literal_u(seed, name, 0, i) / 4096.0, d);
    REQUIRE(bf16_value(values[i]) == literal_round(value, 7, -126));
  }
  elements_checked += count;
}

void check_f32(const std::vector<float>& values, std::uint64_t seed, const std::string& name,
               std::size_t count, double factor) {
  INFO(name);
  REQUIRE(values.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) {
    REQUIRE(static_cast<double>(values[i]) == literal_u(seed, name, 0, i) * factor);
  }
  elements_checked += count;
}

}  // namespace

TEST_CASE("Every seeded weight equals the literal loop") {
  constexpr std::uint64_t kSeed = 0x123456789ABCDEFULL;
  const RunConfig c = config(kSeed);
  const Geometry& g = c.geometry;
  const auto source = seeded_weights(c);
  for (int i = 0; i < 3; ++i) {
    const auto w = source->layer(i);
    const std::string p = "weights/" + std::to_string(i) + "/";
    check_fp8(w->wq_a, kSeed, p + "wq_a", g.q_lora, g.dim);
    check_fp8(w->wq_b, kSeed, p + "wq_b", g.heads * 512, g.q_lora);
    check_fp8(w->wkv, kSeed, p + "wkv", 512, g.dim);
    check_fp8(w->wo_a, kSeed, p + "wo_a", g.o_groups * g.o_lora, g.heads / g.o_groups * 512);
    check_fp8(w->wo_b, kSeed, p + "wo_b", g.dim, g.o_groups * g.o_lora);
    check_norm(w->q_norm, kSeed, p + "q_norm", static_cast<std::size_t>(g.q_lora), false);
    check_norm(w->kv_norm, kSeed, p + "kv_norm", 512, true);
    check_f32(w->attn_sink, kSeed, p + "attn_sink", static_cast<std::size_t>(g.heads), 0x1p-7);
    const int ratio = i == 0 ? 4 : 128;
    const int channels = i == 0 ? 1024 : 512;
    if (i == 2) {
      CHECK(w->compressor.wkv.bf16.empty());
      CHECK(w->indexer_wq_b.codes.empty());
      continue;
    }
    check_bf16(w->compressor.wkv, kSeed, p + "compressor.wkv", channels, g.dim);
    check_bf16(w->compressor.wgate, kSeed, p + "compressor.wgate", channels, g.dim);
    check_f32(w->compressor.ape, kSeed, p + "compressor.ape", static_cast<std::size_t>(ratio * channels),
              0x1p-8);
    check_norm(w->compressor.norm, kSeed, p + "compressor.norm", 512, true);
    if (i == 1) {
      CHECK(w->indexer_wq_b.codes.empty());
      continue;
    }
    check_fp8(w->indexer_wq_b, kSeed, p + "indexer.wq_b", g.index_heads * 128, g.q_lora);
    check_bf16(w->indexer_weights_proj, kSeed, p + "indexer.weights_proj", g.index_heads, g.dim);
    check_bf16(w->indexer_compressor.wkv, kSeed, p + "indexer.compressor.wkv", 256, g.dim);
    check_bf16(w->indexer_compressor.wgate, kSeed, p + "indexer.compressor.wgate", 256, g.dim);
    check_f32(w->indexer_compressor.ape, kSeed, p + "indexer.compressor.ape", 4 * 256, 0x1p-8);
    check_norm(w->indexer_compressor.norm, kSeed, p + "indexer.compressor.norm", 128, false);
  }
  fmt::print("{} weight elements equal the literal loop\n", elements_checked);
  CHECK(source->layer(1) == source->layer(1));  // kept, not made again
}

TEST_CASE("Hidden states depend on layer and content alone") {
  const RunConfig c = config(7);
  const auto source = seeded_hidden(c);
  const auto dim = static_cast<std::size_t>(c.geometry.dim);
  std::vector<std::uint16_t> out(dim);
  int outliers = 0;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string index = std::to_string(layer);
    for (std::int64_t position = 0; position < 5; ++position) {
      Row row;
      row.request = static_cast<std::int32_t>(position % 2);
      row.position = static_cast<std::int32_t>(40 + position);
      row.content = content_id("a", position, 0);
      const std::string text = "a:" + std::to_string(position) + ":0";
      REQUIRE(row.content == XXH3_64bits(text.data(), text.size()));
      source->hidden(layer, row, out);
      for (std::uint32_t k = 0; k < dim; ++k) {
        const bool outlier = literal_word(7, "hidden.outlier/" + index, 0, k) % 64 == 0;
        outliers += outlier && position == 0;
        const double value =
            literal_unit(literal_u(7, "hidden/" + index, row.content, k)) * (outlier ? 16.0 : 1.0);
        REQUIRE(bf16_value(out[k]) == literal_round(value, 7, -126));
      }
    }
  }
  CHECK(outliers > 0);
}

TEST_CASE("Products of seeded hidden states and bf16 weights show the order of their sums") {
  RunConfig c;
  c.geometry = geometry_preset("tiny");
  c.layers = {LayerKind::csa};
  c.seed = 11;
  const auto dim = static_cast<std::size_t>(c.geometry.dim);
  const auto hidden = seeded_hidden(c);
  const auto weights = seeded_weights(c)->layer(0);
  std::vector<std::uint16_t> row(dim);
  int outputs = 0;
  int changed = 0;
  for (std::int64_t position = 0; position < 8; ++position) {
    Row r;
    r.content = content_id("a", position, 0);
    hidden->hidden(0, r, row);
    for (std::size_t n = 0; n < 1024; ++n) {
      const std::uint16_t* w = weights->compressor.wkv.bf16.data() + n * dim;
      // Section 6, blocks of 128, and one fold over the whole length: products are exact in double.
      float blocks = 0.0F;
      float whole = 0.0F;
      for (std::size_t first = 0; first < dim; first += 128) {
        float block = 0.0F;
        for (std::size_t k = first; k < first + 128; ++k) {
          block = std::fma(static_cast<float>(bf16_value(row[k])), static_cast<float>(bf16_value(w[k])), block);
          whole = std::fma(static_cast<float>(bf16_value(row[k])), static_cast<float>(bf16_value(w[k])), whole);
        }
        blocks += block;
      }
      ++outputs;
      changed += blocks != whole;
    }
  }
  fmt::print("another order changes {} of {} sums\n", changed, outputs);
  CHECK(changed > outputs / 4);
}

TEST_CASE("Content ids of traces and generations") {
  const std::string trace = "hash:46:511";
  CHECK(trace_content_id(46, 511) == XXH3_64bits(trace.data(), trace.size()));
  CHECK(content_id("b", 3, 0) != content_id("b", 3, 1));
}

TEST_CASE("u is centred with a deviation of 147.8") {
  const SeededStream stream(1, "hidden/0", 99);
  constexpr int kCount = 200000;
  double sum = 0;
  double squares = 0;
  std::vector<std::int16_t> values(kCount + 3);
  stream.u_values(8, values);
  for (int i = 0; i < kCount; ++i) {
    REQUIRE(values[static_cast<std::size_t>(i)] == stream.u(static_cast<std::uint32_t>(i + 8)));
    sum += values[static_cast<std::size_t>(i)];
    squares += static_cast<double>(values[static_cast<std::size_t>(i)]) * values[static_cast<std::size_t>(i)];
  }
  // Four bytes of variance (256^2 - 1) / 12 each; the mean's own deviation is 0.33.
  CHECK(std::abs(sum / kCount) < 1.7);
  CHECK(std::abs(std::sqrt(squares / kCount) - std::sqrt(4 * 65535.0 / 12)) < 1.0);
}
