#include "model/seed_edits.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <variant>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e4m3.hpp"
#include "model/error.hpp"

namespace dsv4 {
namespace {

constexpr std::int64_t kBlock = 128;  // of FP8 weight scales, both ways
constexpr int kLargestScaleByte = 254;
constexpr std::string_view kHidden = "hidden";

using Target = std::variant<Matrix*, std::vector<std::uint16_t>*, std::vector<float>*>;

/// A weight by its short name, with the shape that a run of the geometry gives it.
struct Named {
  std::string_view name;
  Target (*of)(LayerWeights&);
  std::int64_t (*rows)(const Geometry&, LayerKind);  ///< 1 for vectors
  std::int64_t (*columns)(const Geometry&, LayerKind);
  bool compressor = false;  ///< only layers with a compressor have it
  bool indexer = false;     ///< only ratio-4 layers have it
};

template <int kWidth>
std::int64_t channels(const Geometry&, LayerKind kind) {
  return compressor_channels(kind, kWidth);
}
template <int kCount>
std::int64_t fixed(const Geometry&, LayerKind) {
  return kCount;
}
std::int64_t dim(const Geometry& g, LayerKind) {
  return g.dim;
}
std::int64_t q_lora(const Geometry& g, LayerKind) {
  return g.q_lora;
}
std::int64_t index_heads(const Geometry& g, LayerKind) {
  return g.index_heads;
}
std::int64_t ratio_rows(const Geometry&, LayerKind kind) {
  return ratio(kind);
}

constexpr Named kNamed[]{
    {"wq_a", [](LayerWeights& w) -> Target { return &w.wq_a; }, q_lora, dim},
    {"wq_b", [](LayerWeights& w) -> Target { return &w.wq_b; },
     [](const Geometry& g, LayerKind) { return std::int64_t{g.heads} * kHeadDim; }, q_lora},
    {"wkv", [](LayerWeights& w) -> Target { return &w.wkv; }, fixed<kHeadDim>, dim},
    {"wo_a", [](LayerWeights& w) -> Target { return &w.wo_a; },
     [](const Geometry& g, LayerKind) { return std::int64_t{g.o_groups} * g.o_lora; },
     [](const Geometry& g, LayerKind) { return std::int64_t{g.heads / g.o_groups} * kHeadDim; }},
    {"wo_b", [](LayerWeights& w) -> Target { return &w.wo_b; }, dim,
     [](const Geometry& g, LayerKind) { return std::int64_t{g.o_groups} * g.o_lora; }},
    {"q_norm", [](LayerWeights& w) -> Target { return &w.q_norm; }, fixed<1>, q_lora},
    {"kv_norm", [](LayerWeights& w) -> Target { return &w.kv_norm; }, fixed<1>, fixed<kHeadDim>},
    {"attn_sink", [](LayerWeights& w) -> Target { return &w.attn_sink; }, fixed<1>,
     [](const Geometry& g, LayerKind) { return std::int64_t{g.heads}; }},
    {"compressor.wkv", [](LayerWeights& w) -> Target { return &w.compressor.wkv; }, channels<kHeadDim>, dim,
     true},
    {"compressor.wgate", [](LayerWeights& w) -> Target { return &w.compressor.wgate; }, channels<kHeadDim>,
     dim, true},
    {"compressor.ape", [](LayerWeights& w) -> Target { return &w.compressor.ape; }, ratio_rows,
     channels<kHeadDim>, true},
    {"compressor.norm", [](LayerWeights& w) -> Target { return &w.compressor.norm; }, fixed<1>,
     fixed<kHeadDim>, true},
    {"indexer.wq_b", [](LayerWeights& w) -> Target { return &w.indexer_wq_b; },
     [](const Geometry& g, LayerKind) { return std::int64_t{g.index_heads} * kIndexDim; }, q_lora, false,
     true},
    {"indexer.weights_proj", [](LayerWeights& w) -> Target { return &w.indexer_weights_proj; }, index_heads,
     dim, false, true},
    {"indexer.compressor.wkv", [](LayerWeights& w) -> Target { return &w.indexer_compressor.wkv; },
     channels<kIndexDim>, dim, false, true},
    {"indexer.compressor.wgate", [](LayerWeights& w) -> Target { return &w.indexer_compressor.wgate; },
     channels<kIndexDim>, dim, false, true},
    {"indexer.compressor.ape", [](LayerWeights& w) -> Target { return &w.indexer_compressor.ape; },
     ratio_rows, channels<kIndexDim>, false, true},
    {"indexer.compressor.norm", [](LayerWeights& w) -> Target { return &w.indexer_compressor.norm; },
     fixed<1>, fixed<kIndexDim>, false, true},
};

const Named* find(std::string_view name) {
  const auto* const found = std::ranges::find(kNamed, name, &Named::name);
  return found == std::end(kNamed) ? nullptr : found;
}

bool has(LayerKind kind, const Named& named) {
  if (named.indexer) return has_indexer(kind);
  return !named.compressor || has_compressor(kind);
}

std::string beyond(std::string_view what, const std::vector<std::int64_t>& places, std::int64_t count) {
  for (const std::int64_t place : places) {
    if (place < 0 || place >= count)
      return std::string(what) + " " + std::to_string(place) + " is beyond the " + std::to_string(count);
  }
  return {};
}

template <class Change>
void each(const std::vector<std::int64_t>& chosen, std::int64_t count, const Change& change) {
  if (chosen.empty()) {
    for (std::int64_t place = 0; place < count; ++place) change(place);
  } else {
    for (const std::int64_t place : chosen) change(place);
  }
}

float power_of_two(int exponent) {
  return arith::from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
}

void edit_element(const SeedEdit& edit, float& element) {
  element = edit.value ? *edit.value : element * power_of_two(edit.scale);
}
void edit_element(const SeedEdit& edit, std::uint16_t& bits) {
  float element = arith::bf16_to_f32(bits);
  edit_element(edit, element);
  bits = arith::f32_to_bf16(element);
}

/// A row-major matrix, or a vector as a single row.
template <class Element>
void edit_region(const SeedEdit& edit, std::span<Element> elements, std::int64_t columns) {
  each(edit.rows, std::ssize(elements) / columns, [&](std::int64_t row) {
    each(edit.columns, columns, [&](std::int64_t column) {
      edit_element(edit, elements[static_cast<std::size_t>(row * columns + column)]);
    });
  });
}

void edit_matrix(const SeedEdit& edit, Matrix& m) {
  if (m.format == Matrix::Format::bf16) return edit_region(edit, std::span(m.bf16), m.columns);
  const std::int64_t blocks = (m.columns + kBlock - 1) / kBlock;
  std::set<std::int64_t> touched;
  each(edit.rows, m.rows, [&](std::int64_t row) {
    each(edit.columns, m.columns, [&](std::int64_t column) {
      if (edit.value) {
        m.codes[static_cast<std::size_t>(row * m.columns + column)] = arith::f32_to_e4m3(*edit.value);
      } else {
        touched.insert(row / kBlock * blocks + column / kBlock);
      }
    });
  });
  for (const std::int64_t block : touched) {
    std::uint8_t& byte = m.scales[static_cast<std::size_t>(block)];
    byte = static_cast<std::uint8_t>(std::clamp(byte + edit.scale, 0, kLargestScaleByte));
  }
}

std::int64_t columns_of(const SeedEdit& edit, const LayerWeights& w, std::int64_t size) {
  if (edit.tensor == "compressor.ape") return w.compressor.wkv.rows;
  if (edit.tensor == "indexer.compressor.ape") return w.indexer_compressor.wkv.rows;
  return size;
}

}  // namespace

std::string seed_edit_fault(const SeedEdit& edit, const Geometry& geometry,
                            const std::vector<LayerKind>& layers) {
  if (edit.layer && (*edit.layer < 0 || *edit.layer >= std::ssize(layers)))
    return "layer " + std::to_string(*edit.layer) + " is beyond the " + std::to_string(layers.size()) +
           " layers";
  if (edit.tensor == kHidden) {
    if (!edit.rows.empty()) return "hidden states have columns only";
    return beyond("column", edit.columns, geometry.dim);
  }
  const Named* const named = find(edit.tensor);
  if (named == nullptr) {
    std::string known(kHidden);
    for (const Named& one : kNamed) known += ", " + std::string(one.name);
    return "unknown tensor '" + edit.tensor + "' (known: " + known + ")";
  }
  bool found = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if ((edit.layer && static_cast<std::size_t>(*edit.layer) != i) || !has(layers[i], *named)) continue;
    found = true;
    std::string fault = beyond("row", edit.rows, named->rows(geometry, layers[i]));
    if (fault.empty()) fault = beyond("column", edit.columns, named->columns(geometry, layers[i]));
    if (!fault.empty()) return edit.tensor + ": " + fault + " of layer " + std::to_string(i);
  }
  return found ? std::string() : "no layer of the run has " + edit.tensor;
}

void apply_seed_edits(const std::vector<SeedEdit>& edits, int layer, LayerWeights& weights) {
  for (const SeedEdit& edit : edits) {
    if (edit.tensor == kHidden || (edit.layer && *edit.layer != layer)) continue;
    const Named* const named = find(edit.tensor);
    require(named != nullptr, "an edit of an unknown tensor");
    const Target target = named->of(weights);
    if (Matrix* const* matrix = std::get_if<Matrix*>(&target)) {
      if ((*matrix)->rows > 0) edit_matrix(edit, **matrix);
    } else if (auto* const* bits = std::get_if<std::vector<std::uint16_t>*>(&target)) {
      if (!(*bits)->empty()) edit_region(edit, std::span(**bits), std::ssize(**bits));
    } else {
      std::vector<float>& values = *std::get<std::vector<float>*>(target);
      if (!values.empty())
        edit_region(edit, std::span(values), columns_of(edit, weights, std::ssize(values)));
    }
  }
}

void apply_seed_edits(const std::vector<SeedEdit>& edits, int layer, std::span<std::uint16_t> hidden) {
  for (const SeedEdit& edit : edits) {
    if (edit.tensor != kHidden || (edit.layer && *edit.layer != layer)) continue;
    edit_region(edit, hidden, std::ssize(hidden));
  }
}

}  // namespace dsv4
