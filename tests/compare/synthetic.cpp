#include "compare/synthetic.hpp"

#include <algorithm>
#include <bit>

#include "compare/meaning.hpp"
#include "compare/packed_row.hpp"
#include "model/layout.hpp"

namespace dsv4::test {
namespace {

// A different, finite, normal number for every element, by a fixed recurrence.
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : state_(seed * 2654435761U + 12345) {}
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  float value() { return (static_cast<float>(next() % 2001) - 1000.0F) / 512.0F + 3.0F; }

 private:
  std::uint64_t state_;
};

std::int64_t axis_size(TensorId id, const std::string& axis, bool first, const Geometry& g, bool csa) {
  if (axis == "token") return kTokens;
  if (axis == "row") return 3;
  if (first && axis == "entry") return 2;
  if (axis == "entry") return kScoreWidth;
  if (axis == "head") return info(id).stage == Stage::indexer_query ? g.index_heads : g.heads;
  if (axis == "item")
    return id == TensorId::window_slots || id == TensorId::window_logical ? kWindow : g.index_topk;
  if (axis == "rank") return id == TensorId::selected ? g.index_topk : g.q_lora;
  const bool indexer = name(info(id).stage).starts_with("indexer");
  if (axis == "channel") {
    if (info(id).stage == Stage::output_project) return std::int64_t{g.o_groups} * g.o_lora;
    return (csa ? 2 : 1) * (indexer ? kIndexDim : kHeadDim);
  }
  if (axis == "byte") return indexer ? layout::kIndexFp8RowBytes : layout::kKvRowBytes;
  if (axis == "block") {
    if (id == TensorId::hidden_scales) return g.dim / 128;
    if (id == TensorId::o_latent_scales) return std::int64_t{g.o_groups} * g.o_lora / 128;
    return indexer ? 1 : layout::kKvScales;
  }
  // dim
  if (id == TensorId::hidden || id == TensorId::hidden_codes || id == TensorId::hidden_out) return g.dim;
  if (id == TensorId::window_rope || id == TensorId::compress_rope) return kRopeDim;
  if (id == TensorId::window_codes || id == TensorId::compress_codes) return kNopeDim;
  return indexer ? kIndexDim : kHeadDim;
}

void fill(TensorId id, Tensor& tensor) {
  Pattern pattern(static_cast<std::uint64_t>(id) + 1);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    switch (tensor.dtype()) {
      case DType::bfloat16:
        set<std::uint16_t>(tensor, i,
                           static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(pattern.value()) >> 16));
        break;
      case DType::float32: {
        const bool scale = dsv4::compare::codes_of(id).has_value();
        set<float>(tensor, i, scale ? 0.5F : pattern.value());
        break;
      }
      case DType::float8_e8m0fnu:
        set<std::uint8_t>(tensor, i, static_cast<std::uint8_t>(120 + pattern.next() % 8));
        break;
      case DType::int32:
        set<std::int32_t>(tensor, i, static_cast<std::int32_t>(pattern.next() % 1000));
        break;
      default:
        set<std::uint8_t>(tensor, i, static_cast<std::uint8_t>(0x20 + pattern.next() % 0x50));
    }
  }
}

Tensor ints(std::vector<std::int32_t> values) {
  Tensor tensor(DType::int32, {static_cast<std::int64_t>(values.size())});
  std::ranges::copy(values, tensor.as<std::int32_t>().begin());
  return tensor;
}

}  // namespace

SourceInfo synthetic_info(std::vector<LayerKind> layers) {
  SourceInfo info;
  info.engine = "reference";
  info.device = "cpu";
  info.config.geometry = geometry_preset("tiny");
  info.config.geometry.dim = 256;
  info.config.layers = std::move(layers);
  info.config.requests = {"a", "b"};
  return info;
}

StepObservation synthetic_step(const SourceInfo& source) {
  StepObservation step;
  step.step = 3;
  step.event = R"({"decode":{}})";
  step.batch.request = ints({0, 0, 0, 0, 1, 1, -1});
  step.batch.position = ints({8, 9, 10, 11, 10, 11, -1});
  step.batch.slot = ints({72, 73, 74, 75, 138, 139, -1});
  step.batch.page = ints({1, 1, 1, 1, 2, 2, -1});
  step.batch.prefix = Tensor(DType::int32, {0, 3});
  for (const LayerKind kind : source.config.layers) {
    LayerObservation layer;
    for (const Stage stage : execution_order(kind, false)) {
      for (const TensorInfo& tensor : tensor_catalogue()) {
        if (tensor.stage != stage) continue;
        if (tensor.id == TensorId::compress_state_max || tensor.id == TensorId::compress_state_sum) continue;
        std::vector<std::int64_t> shape;
        bool first = true;
        for (const std::string& axis : compare::axis_names(tensor.dims)) {
          shape.push_back(axis_size(tensor.id, axis, first, source.config.geometry, kind == LayerKind::csa));
          first = false;
        }
        Tensor value(tensor.dtype, shape);
        fill(tensor.id, value);
        layer.tensors.emplace(tensor.id, std::move(value));
      }
    }
    using enum TensorId;
    if (kind != LayerKind::swa) {
      layer.tensors[compress_state_token] = ints({2, 3, 5});
      for (const TensorId id : {compress_request, compress_pool_request}) layer.tensors[id] = ints({0, 1});
      for (const TensorId id : {compress_index, compress_pool_index}) layer.tensors[id] = ints({2, 2});
      layer.tensors[compress_slot] = ints({66, 130});
    }
    if (kind == LayerKind::csa) {
      layer.tensors[indexer_state_token] = ints({2, 3, 5});
      for (const TensorId id : {indexer_request, indexer_pool_request}) layer.tensors[id] = ints({0, 1});
      for (const TensorId id : {indexer_index, indexer_pool_index}) layer.tensors[id] = ints({2, 2});
      layer.tensors[indexer_slot] = ints({66, 130});
      layer.tensors[visible] = ints({kVisible, kVisible + kTokens});
      const std::int64_t k = source.config.geometry.index_topk;
      Tensor chosen(DType::int32, {kTokens, k});
      std::ranges::fill(chosen.as<std::int32_t>(), -1);
      for (std::int64_t token = 0; token < kTokens; ++token) {
        for (std::int32_t entry = 0; entry < kVisible[token]; ++entry)
          set<std::int32_t>(chosen, token * k + entry, entry);
      }
      layer.tensors[selected] = chosen;
      layer.tensors[compressed_logical] = chosen;
      layer.tensors[compressed_slots] = chosen;
      layer.tensors[selected_count] = layer.tensors[visible];
      layer.state_digests[Cache::index_entries] = std::string(32, '2');
      layer.state_digests[Cache::index_state] = std::string(32, '4');
      layer.state_tensors["indexer_pages"] = Tensor(DType::uint8, {3, layout::index_page_bytes(64, false)});
    }
    layer.state_digests[Cache::window] = std::string(32, '0');
    layer.state_tensors["swa_pages"] = Tensor(DType::uint8, {3, layout::kv_page_bytes(64)});
    if (kind != LayerKind::swa) {
      layer.state_digests[Cache::entries] = std::string(32, '1');
      layer.state_digests[Cache::state] = std::string(32, '3');
      layer.state_tensors["compressed_pages"] =
          Tensor(DType::uint8, {3, layout::kv_page_bytes(kind == LayerKind::csa ? 64 : 2)});
      layer.state_tensors["compress_state_kv"] = Tensor(DType::float32, {8, 64});
    }
    step.layers.push_back(std::move(layer));
  }
  return step;
}

std::int64_t judged_element(TensorId id, const Tensor& tensor) {
  const std::int64_t width = tensor.row_elements();
  const std::int64_t row = info(id).dims.starts_with("token") ? 4 : tensor.dim(0) - 1;
  if (id == TensorId::scores) return row * width + 1;
  if (width == 1) return row;
  return row * width + std::min(width / 2 + 1, width - 1);
}

void flip(Tensor& tensor, std::int64_t element) {
  const std::size_t size = size_bytes(tensor.dtype());
  tensor.bytes()[static_cast<std::size_t>(element) * size] ^= std::byte{1};
}

}  // namespace dsv4::test
