#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/error.hpp"
#include "reference/compressor.hpp"
#include "reference/hadamard.hpp"
#include "reference/kv_row.hpp"
#include "reference/norm_rotate.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// The entries of this step with their pooled values and slots.
struct Finish {
  std::vector<ClosedEntry> closed;
  std::vector<std::int64_t> slots;
  const float* pooled = nullptr;
  std::int64_t count() const { return std::ssize(closed); }
};

Finish collect(const StageContext& context, const Compressor& form) {
  Finish work;
  work.closed = closed_entries(context, form);
  const Tensor& pooled = context.input(form.indexer ? TensorId::indexer_pooled : TensorId::compress_pooled);
  if (pooled.dim(0) != work.count()) {
    throw InternalError(fmt::format("step {} layer {}: {} pooled rows for {} closed entries",
                                    context.plan.index, context.layer, pooled.dim(0), work.count()));
  }
  work.pooled = pooled.as<float>().data();
  for (const ClosedEntry& entry : work.closed) {
    work.slots.push_back(context.slots(*entry.request).at(form.entry_cache, entry.index));
  }
  return work;
}

/// bf16 (or not, axis pooled_rounding), norm, RoPE at the window's first position (12.7).
void norm_entry(const StageContext& context, const Compressor& form, const Finish& work, std::int64_t i,
                std::uint16_t* entry) {
  const NormRotate how{form.weights->norm.data(), context.geometry().eps, context.profile().get<NormWeight>(),
                       context.profile().get<RopeInput>()};
  std::array<float, kHeadDim> x;
  const float* pooled = work.pooled + i * form.d;
  if (context.profile().get<PooledRounding>() == PooledRounding::bf16) {
    round_bf16(pooled, form.d, entry);
    widen_bf16(entry, form.d, x.data());
  } else {
    std::copy_n(pooled, form.d, x.data());
  }
  const std::int64_t first = std::int64_t{work.closed[static_cast<std::size_t>(i)].index} * form.ratio;
  norm_rotate(how, x.data(), form.d, context.state.rope.at(first), nullptr, entry);
}

void publish_addresses(StageContext& context, const Compressor& form, const Finish& work) {
  std::array<Tensor, 3> columns;
  for (Tensor& column : columns) column = Tensor(DType::int32, {work.count()});
  for (std::size_t i = 0; i < work.closed.size(); ++i) {
    columns[0].as<std::int32_t>()[i] = work.closed[i].request->request;
    columns[1].as<std::int32_t>()[i] = work.closed[i].index;
    columns[2].as<std::int32_t>()[i] = static_cast<std::int32_t>(work.slots[i]);
  }
  using enum TensorId;
  context.publish(form.indexer ? indexer_request : compress_request, std::move(columns[0]));
  context.publish(form.indexer ? indexer_index : compress_index, std::move(columns[1]));
  context.publish(form.indexer ? indexer_slot : compress_slot, std::move(columns[2]));
}

void write_entries(StageContext& context, const Compressor& form, Stage stage, const Finish& work,
                   const Tensor& page_bytes) {
  const std::int64_t row = page_bytes.dim(1);
  for (std::int64_t i = 0; i < work.count(); ++i) {
    const ClosedEntry& entry = work.closed[static_cast<std::size_t>(i)];
    context.write(stage, form.entry_cache, work.slots[static_cast<std::size_t>(i)], entry.request->request,
                  entry.index, page_bytes.bytes().subspan(i * row, row));
  }
}

void finish_main(StageContext& context, const Compressor& form, Stage stage, const Finish& work) {
  const std::int64_t n = work.count();
  Tensor entry(DType::bfloat16, {n, kHeadDim});
  Tensor codes(DType::float8_e4m3fn, {n, kNopeDim});
  Tensor rope(DType::bfloat16, {n, kRopeDim});
  Tensor scales(DType::float8_e8m0fnu, {n, layout::kKvScales});
  Tensor page_bytes(DType::uint8, {n, layout::kKvRowBytes});
  const QuantFloor floor = kv_floor(context.profile());
  std::uint16_t* const entries = entry.as<std::uint16_t>().data();
  std::uint16_t* const ropes = rope.as<std::uint16_t>().data();
  std::uint8_t* const code_rows = codes.as<std::uint8_t>().data();
  std::uint8_t* const scale_rows = scales.as<std::uint8_t>().data();
  std::byte* const bytes = page_bytes.bytes().data();
#pragma omp parallel for schedule(static) if (n > 1)
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t* row = entries + i * kHeadDim;
    norm_entry(context, form, work, i, row);
    std::copy_n(row + kNopeDim, kRopeDim, ropes + i * kRopeDim);
    encode_kv_row(row, floor, code_rows + i * kNopeDim, scale_rows + i * layout::kKvScales,
                  bytes + i * layout::kKvRowBytes);
  }
  write_entries(context, form, stage, work, page_bytes);
  context.publish(TensorId::compress_entry, std::move(entry));
  context.publish(TensorId::compress_codes, std::move(codes));
  context.publish(TensorId::compress_rope, std::move(rope));
  context.publish(TensorId::compress_scales, std::move(scales));
  context.publish(TensorId::compress_page_bytes, std::move(page_bytes));
}

/// The indexer's key is rotated by the Hadamard matrix before it is quantised (axes index_rotation,
/// index_cache).
void finish_indexer(StageContext& context, const Compressor& form, Stage stage, const Finish& work) {
  const IndexCache format = context.profile().get<IndexCache>();
  const bool fp4 = format == IndexCache::fp4;
  const bool rotate = context.profile().get<IndexRotation>() == IndexRotation::both;
  const std::int64_t n = work.count();
  const int blocks = index_scales(format);
  Tensor entry(DType::bfloat16, {n, kIndexDim});
  Tensor codes(fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, {n, kIndexDim});
  Tensor scales(fp4 ? DType::float8_e8m0fnu : DType::float32, {n, blocks});
  const std::int64_t row_bytes = fp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes;
  Tensor page_bytes(DType::uint8, {n, row_bytes});
  std::vector<std::uint8_t> scale_bytes(static_cast<std::size_t>(n * blocks));
  std::uint16_t* const entries = entry.as<std::uint16_t>().data();
  std::uint8_t* const code_rows = codes.as<std::uint8_t>().data();
  std::byte* const bytes = page_bytes.bytes().data();
#pragma omp parallel for schedule(static) if (n > 1)
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t* row = entries + i * kIndexDim;
    norm_entry(context, form, work, i, row);
    if (rotate) hadamard128(row, row);
    std::uint8_t* row_scales = scale_bytes.data() + i * blocks;
    quantize_index(row, format, code_rows + i * kIndexDim, row_scales);
    encode_index_row(code_rows + i * kIndexDim, row_scales, format, bytes + i * row_bytes);
  }
  if (fp4) {
    std::ranges::copy(scale_bytes, scales.as<std::uint8_t>().begin());
  } else {
    widen_scales(scale_bytes.data(), n, scales.as<float>().data());
  }
  write_entries(context, form, stage, work, page_bytes);
  context.publish(TensorId::indexer_entry, std::move(entry));
  context.publish(TensorId::indexer_codes, std::move(codes));
  context.publish(TensorId::indexer_scales, std::move(scales));
  context.publish(TensorId::indexer_page_bytes, std::move(page_bytes));
}

}  // namespace

void compress_finish(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  const Finish work = collect(context, form);
  publish_addresses(context, form, work);
  if (form.indexer) {
    finish_indexer(context, form, stage, work);
  } else {
    finish_main(context, form, stage, work);
  }
}

}  // namespace dsv4::reference
