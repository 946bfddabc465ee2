/// compress.finish and indexer.finish: bf16, RMS norm, RoPE at the group's first position, for index keys
/// Hadamard, quantisation, page (docs/numerics.md 12.7).
#include <cstring>

#include "model/layout.hpp"
#include "wide/compressor.hpp"
#include "wide/key_rows.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// `scales`: the engine's own, before any that were given took their place.
std::vector<std::byte> packed_index(const Quantised& key, const Values& scales, Eigen::Index row, bool fp4) {
  std::vector<std::byte> bytes;
  const std::uint8_t* const codes = key.codes.data() + row * kIndexDim;
  if (!fp4) {
    const auto scale = static_cast<float>(scales(row, 0));
    bytes.resize(layout::kIndexFp8RowBytes);
    std::memcpy(bytes.data(), codes, kIndexDim);
    std::memcpy(bytes.data() + layout::kIndexFp8ValueBytes, &scale, sizeof scale);
    return bytes;
  }
  for (int i = 0; i < kIndexDim; i += 2)
    bytes.push_back(static_cast<std::byte>(codes[i] | codes[i + 1] << 4));
  for (Eigen::Index block = 0; block < key.blocks; ++block) {
    bytes.push_back(static_cast<std::byte>(key.scales[static_cast<std::size_t>(row * key.blocks + block)]));
  }
  return bytes;
}

std::vector<std::vector<std::byte>> publish_index_keys(Layer& layer, Balls keys) {
  const bool rounded = layer.rounding<IndexRow>() == IndexRow::bf16;
  keys.round_to_bf16(layer.exact() || !rounded);
  if (layer.axis<IndexRotation>() == IndexRotation::both) hadamard(keys, layer.exact());
  keys = layer.publish_row(TensorId::indexer_entry, {kIndexDim}, std::move(keys), rounded);
  std::vector<std::vector<std::byte>> rows(static_cast<std::size_t>(keys.rows()));
  if (layer.exact()) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = exact_row(keys.value, static_cast<Eigen::Index>(i));
    return rows;
  }
  const IndexCache cache = layer.axis<IndexCache>();
  if (layout::plain(cache)) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = plain_row(keys.value, static_cast<Eigen::Index>(i), cache == IndexCache::f16);
    layer.publish_bytes(TensorId::indexer_page_bytes, rows);
    return rows;
  }
  const bool fp4 = cache == IndexCache::fp4;
  Quantised codes = quantise(keys, kIndexDim, index_format(layer.config.profile));
  const Values scales = codes.scale.value;
  layer.publish_codes(TensorId::indexer_codes, TensorId::indexer_scales, {kIndexDim}, {codes.blocks}, codes,
                      fp4, !fp4);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = packed_index(codes, scales, static_cast<Eigen::Index>(i), fp4);
  layer.publish_bytes(TensorId::indexer_page_bytes, rows);
  return rows;
}

}  // namespace

void compress_finish(Layer& layer, const StepPlan& plan, bool indexer) {
  using enum TensorId;
  const Compressor self = compressor(layer, indexer);
  const std::vector<ClosedEntry> entries = closed_entries(layer, plan);
  Balls keys(layer.input(self.pooled));
  require(keys.rows() == std::ssize(entries), "the pooled rows are not the entries that the step closes");
  const bool rounded =
      indexer ? layer.rounding<IndexRow>() == IndexRow::bf16 : layer.rounding<KvRow>() != KvRow::f32;
  keys.round_to_bf16(layer.exact() || layer.axis<PooledRounding>() == PooledRounding::f32);
  keys = rms_norm(keys, bf16_values(self.weights.norm), static_cast<double>(layer.geometry().eps),
                  HeadNorm::f32, layer.rounding<NormWeight>());
  keys.round_to_bf16(layer.exact() || !rounded || layer.axis<RopeInput>() == RopeInput::f32);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::int32_t first = entries[i].position + 1 - ratio(layer.kind);
    rotate(keys, static_cast<Eigen::Index>(i), self.width - kRopeDim, layer.rope.at(first), false);
  }
  auto rows =
      indexer
          ? publish_index_keys(layer, std::move(keys))
          : publish_keys(
                layer, {compress_entry, compress_codes, compress_rope, compress_scales, compress_page_bytes},
                std::move(keys), rounded);
  std::vector<std::int32_t> requests;
  std::vector<std::int32_t> indices;
  std::vector<std::int32_t> slots;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RequestStep& step = plan.requests[entries[i].step];
    const std::int64_t slot =
        layer.caches.slot(self.entries, {*step.tables, step.state_base}, entries[i].index);
    layer.write(indexer ? Stage::indexer_finish : Stage::compress_finish, self.entries, slot, step.request,
                entries[i].index, std::move(rows[i]));
    requests.push_back(step.request);
    indices.push_back(entries[i].index);
    slots.push_back(static_cast<std::int32_t>(slot));
  }
  const std::vector<std::int64_t> shape{std::ssize(entries)};
  layer.publish_integers(indexer ? indexer_request : compress_request, shape, requests);
  layer.publish_integers(indexer ? indexer_index : compress_index, shape, indices);
  layer.publish_integers(indexer ? indexer_slot : compress_slot, shape, slots);
}

}  // namespace dsv4::wide
