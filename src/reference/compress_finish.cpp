#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/error.hpp"
#include "reference/compressor.hpp"
#include "reference/hadamard.hpp"
#include "reference/kv_row.hpp"
#include "reference/norm_rotate.hpp"
#include "reference/profile_rows.hpp"
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

/// bf16 (or not, axis pooled_rounding), norm, RoPE at the window's first position (12.7). The entry is bf16,
/// or f32 where the profile does not round it (axes kv_row and index_row).
template <class Value>
void norm_entry(const StageContext& context, const Compressor& form, const Finish& work, std::int64_t i,
                Value* entry) {
  const NormRotate how{form.weights->norm.data(), context.geometry().eps, context.profile().get<NormWeight>(),
                       context.profile().get<RopeInput>()};
  std::array<float, kHeadDim> x;
  const float* pooled = work.pooled + i * form.d;
  if (context.profile().get<PooledRounding>() == PooledRounding::bf16) {
    std::array<std::uint16_t, kHeadDim> rounded;
    round_bf16(pooled, form.d, rounded.data());
    widen_bf16(rounded.data(), form.d, x.data());
  } else {
    std::copy_n(pooled, form.d, x.data());
  }
  const std::int64_t first = std::int64_t{work.closed[static_cast<std::size_t>(i)].index} * form.ratio;
  norm_rotate(how, x.data(), form.d, context.state.rope.at(first), static_cast<Value*>(nullptr), entry);
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

/// Profiles that do not round entries to bf16, or store no codes (axes kv_row and kv_cache).
void finish_main_f32(StageContext& context, const Compressor& form, Stage stage, const Finish& work) {
  const std::int64_t n = work.count();
  const KvCache cache = context.profile().get<KvCache>();
  const bool codes = !layout::plain(cache);
  const bool rounded = context.profile().get<KvRow>() != KvRow::f32;
  const std::int64_t row_bytes = layout::row_form(cache).row_bytes();
  Tensor entry(rounded ? DType::bfloat16 : DType::float32, {n, kHeadDim});
  Tensor code_rows(DType::float8_e4m3fn, {codes ? n : 0, kNopeDim});
  Tensor scale_rows(DType::float8_e8m0fnu, {codes ? n : 0, layout::kKvScales});
  Tensor rope(DType::bfloat16, {n, kRopeDim});
  Tensor page_bytes(DType::uint8, {n, row_bytes});
#pragma omp parallel for schedule(static) if (n > 1)
  for (std::int64_t i = 0; i < n; ++i) {
    std::array<float, kHeadDim> row;
    if (rounded) {
      std::uint16_t* const out = entry.as<std::uint16_t>().data() + i * kHeadDim;
      norm_entry(context, form, work, i, out);
      widen_bf16(out, kHeadDim, row.data());
    } else {
      norm_entry(context, form, work, i, row.data());
      std::ranges::copy(row, entry.as<float>().begin() + i * kHeadDim);
    }
    round_bf16(row.data() + kNopeDim, kRopeDim, rope.as<std::uint16_t>().data() + i * kRopeDim);
    store_kv_row(row.data(), cache, codes ? code_rows.as<std::uint8_t>().data() + i * kNopeDim : nullptr,
                 codes ? scale_rows.as<std::uint8_t>().data() + i * layout::kKvScales : nullptr,
                 page_bytes.bytes().data() + i * row_bytes);
  }
  write_entries(context, form, stage, work, page_bytes);
  context.publish(TensorId::compress_entry, std::move(entry));
  if (codes) {
    context.publish(TensorId::compress_codes, std::move(code_rows));
    context.publish(TensorId::compress_rope, std::move(rope));
    context.publish(TensorId::compress_scales, std::move(scale_rows));
  }
  context.publish(TensorId::compress_page_bytes, std::move(page_bytes));
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
/// index_row, index_cache, index_scale, fp4_rule).
void finish_indexer(StageContext& context, const Compressor& form, Stage stage, const Finish& work) {
  const IndexForm index = index_form(context.profile());
  const bool rotate = context.profile().get<IndexRotation>() == IndexRotation::both;
  const bool rounded = context.profile().get<IndexRow>() == IndexRow::bf16;
  const std::int64_t n = work.count();
  const std::int64_t coded = index.plain() ? 0 : n;
  const int blocks = index_scales(index.cache);
  Tensor entry(rounded ? DType::bfloat16 : DType::float32, {n, kIndexDim});
  Tensor codes(index.fp4() ? DType::float4_e2m1fn : DType::float8_e4m3fn, {coded, kIndexDim});
  Tensor scales(index.fp4() ? DType::float8_e8m0fnu : DType::float32, {coded, blocks});
  const std::int64_t row_bytes = layout::row_form(index.cache).row_bytes();
  Tensor page_bytes(DType::uint8, {n, row_bytes});
#pragma omp parallel for schedule(static) if (n > 1)
  for (std::int64_t i = 0; i < n; ++i) {
    std::array<float, kIndexDim> row;
    if (rounded) {
      std::uint16_t* const out = entry.as<std::uint16_t>().data() + i * kIndexDim;
      norm_entry(context, form, work, i, out);
      if (rotate) hadamard128(out, out);
      widen_bf16(out, kIndexDim, row.data());
    } else {
      norm_entry(context, form, work, i, row.data());
      if (rotate) hadamard128(row.data());
      std::ranges::copy(row, entry.as<float>().begin() + i * kIndexDim);
    }
    std::byte* const bytes = page_bytes.bytes().data() + i * row_bytes;
    if (index.plain()) {
      store_plain(row.data(), kIndexDim, index.cache == IndexCache::f16, bytes);
      continue;
    }
    const IndexCodes key = quantize_index(row.data(), index);
    store_index_row(key, index, bytes);
    std::ranges::copy(key.codes, codes.as<std::uint8_t>().begin() + i * kIndexDim);
    if (index.fp4()) {
      std::ranges::copy(key.scale_bytes, scales.as<std::uint8_t>().begin() + i * blocks);
    } else {
      scales.as<float>()[static_cast<std::size_t>(i)] = key.scale;
    }
  }
  write_entries(context, form, stage, work, page_bytes);
  context.publish(TensorId::indexer_entry, std::move(entry));
  if (!index.plain()) {
    context.publish(TensorId::indexer_codes, std::move(codes));
    context.publish(TensorId::indexer_scales, std::move(scales));
  }
  context.publish(TensorId::indexer_page_bytes, std::move(page_bytes));
}

}  // namespace

void compress_finish(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  const Finish work = collect(context, form);
  publish_addresses(context, form, work);
  if (form.indexer) {
    finish_indexer(context, form, stage, work);
  } else if (context.profile().get<KvRow>() == KvRow::f32 ||
             layout::plain(context.profile().get<KvCache>())) {
    finish_main_f32(context, form, stage, work);
  } else {
    finish_main(context, form, stage, work);
  }
}

}  // namespace dsv4::reference
