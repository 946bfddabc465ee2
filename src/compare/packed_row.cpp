#include "compare/packed_row.hpp"

#include <array>

#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

constexpr std::array<PackedRow, 3> kRows{{
    {PackedRow::Kind::kv, layout::kKvValueBytes, layout::kKvScaleBytes, layout::kKvBlock},
    {PackedRow::Kind::index_fp8, layout::kIndexFp8ValueBytes, layout::kIndexFp8ScaleBytes, kIndexDim},
    {PackedRow::Kind::index_fp4, layout::kIndexFp4ValueBytes, layout::kIndexFp4ScaleBytes,
     layout::kIndexFp4Block},
}};

struct Pair {
  TensorId codes;
  TensorId scales;
};
constexpr Pair kPairs[]{
    {TensorId::hidden_codes, TensorId::hidden_scales},
    {TensorId::window_codes, TensorId::window_scales},
    {TensorId::compress_codes, TensorId::compress_scales},
    {TensorId::indexer_codes, TensorId::indexer_scales},
    {TensorId::query_codes, TensorId::query_scales},
    {TensorId::o_latent_codes, TensorId::o_latent_scales},
};

}  // namespace

std::string_view name(PackedPart part) {
  constexpr std::array<std::string_view, 5> kNames{"codes", "rope", "scales", "spare byte",
                                                   "behind the last row"};
  return kNames[static_cast<std::size_t>(part)];
}

std::optional<PackedRow> PackedRow::of_row_bytes(std::int64_t bytes) {
  for (const PackedRow& row : kRows) {
    if (bytes == row.value_bytes + row.scale_bytes) return row;
  }
  return std::nullopt;
}

PackedRow PackedRow::with_rows(std::int64_t page_rows) const {
  PackedRow page = *this;
  page.rows = page_rows;
  return page;
}

PackedByte PackedRow::locate(std::int64_t byte) const {
  if (byte < rows * value_bytes) {
    const std::int64_t row = byte / value_bytes;
    const std::int64_t within = byte % value_bytes;
    if (kind == Kind::index_fp4) return {PackedPart::codes, row, within * 2};
    if (kind == Kind::kv && within >= kNopeDim) return {PackedPart::rope, row, (within - kNopeDim) / 2};
    return {PackedPart::codes, row, within};
  }
  const std::int64_t behind = byte - rows * value_bytes;
  if (behind >= rows * scale_bytes) return {PackedPart::behind, -1, 0};
  const std::int64_t row = behind / scale_bytes;
  const std::int64_t within = behind % scale_bytes;
  if (kind == Kind::index_fp8) return {PackedPart::scales, row, 0};
  if (kind == Kind::kv && within == layout::kKvScales) return {PackedPart::spare, row, 0};
  return {PackedPart::scales, row, within};
}

std::int64_t PackedRow::code_byte(std::int64_t row, std::int64_t dim) const {
  return row * value_bytes + (kind == Kind::index_fp4 ? dim / 2 : dim);
}

std::int64_t PackedRow::rope_byte(std::int64_t row, std::int64_t dim) const {
  return row * value_bytes + kNopeDim + 2 * dim;
}

std::int64_t PackedRow::scale_byte(std::int64_t row, std::int64_t index) const {
  return rows * value_bytes + row * scale_bytes + (kind == Kind::index_fp8 ? 0 : index);
}

int block_size(TensorId codes, DType dtype) {
  if (codes == TensorId::window_codes || codes == TensorId::compress_codes) return layout::kKvBlock;
  return dtype == DType::float4_e2m1fn ? layout::kIndexFp4Block : kIndexDim;
}

std::optional<TensorId> scales_of(TensorId codes) {
  for (const Pair& pair : kPairs) {
    if (pair.codes == codes) return pair.scales;
  }
  return std::nullopt;
}

std::optional<TensorId> codes_of(TensorId scales) {
  for (const Pair& pair : kPairs) {
    if (pair.scales == scales) return pair.codes;
  }
  return std::nullopt;
}

}  // namespace dsv4::compare
