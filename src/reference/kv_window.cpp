#include <algorithm>
#include <array>

#include "reference/kv_row.hpp"
#include "reference/norm_rotate.hpp"
#include "reference/profile_rows.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Every row of the step goes into its page: a token of a chunk attends to keys that the chunk's end has left
/// behind. A row whose page is not held, or that a restore step keeps, is not written.
void write_pages(StageContext& context, const Tensor& page_bytes) {
  const auto row_bytes = static_cast<std::size_t>(page_bytes.dim(1));
  for (const RequestStep& request : context.plan.requests) {
    const Slots slots = context.slots(request);
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const std::int32_t position = request.begin + i;
      if (position < request.from.window) continue;
      const std::int64_t slot = slots.find(Cache::window, position);
      if (slot < 0) continue;
      context.write(Stage::kv_window, Cache::window, slot, request.request, position,
                    page_bytes.bytes().subspan((request.first_row + i) * row_bytes, row_bytes));
    }
  }
}

/// The rows of profiles that do not round them to bf16, or store no codes: the same steps on f32 values
/// (axes kv_row and kv_cache). `kv` and `normed` are f32 tensors where rows are not rounded.
void window_rows(StageContext& context, const std::uint16_t* raw) {
  const Profile& profile = context.profile();
  const KvCache cache = profile.get<KvCache>();
  const bool rounded = profile.get<KvRow>() == KvRow::bf16;
  const bool codes = !layout::plain(cache);
  const std::int64_t tokens = context.tokens();
  const std::int64_t row_bytes = layout::row_form(cache).row_bytes();
  const DType dtype = rounded ? DType::bfloat16 : DType::float32;
  Tensor normed(dtype, {tokens, kHeadDim});
  Tensor kv(dtype, {tokens, kHeadDim});
  Tensor code_rows(DType::float8_e4m3fn, {codes ? tokens : 0, kNopeDim});
  Tensor scale_rows(DType::float8_e8m0fnu, {codes ? tokens : 0, layout::kKvScales});
  Tensor rope(DType::bfloat16, {tokens, kRopeDim});
  Tensor page_bytes(DType::uint8, {tokens, row_bytes});
  const NormRotate how{context.weights().kv_norm.data(), context.geometry().eps, profile.get<NormWeight>(),
                       RopeInput::bf16};
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (context.padding(token)) continue;
    const RopeAngles angles = context.state.rope.at(context.position(token));
    std::array<float, kHeadDim> x;
    std::array<float, kHeadDim> row;
    widen_bf16(raw + token * kHeadDim, kHeadDim, x.data());
    if (rounded) {
      std::uint16_t* const out = kv.as<std::uint16_t>().data() + token * kHeadDim;
      norm_rotate(how, x.data(), kHeadDim, angles, normed.as<std::uint16_t>().data() + token * kHeadDim, out);
      widen_bf16(out, kHeadDim, row.data());
    } else {
      norm_rotate(how, x.data(), kHeadDim, angles, normed.as<float>().data() + token * kHeadDim, row.data());
      std::ranges::copy(row, kv.as<float>().begin() + token * kHeadDim);
    }
    round_bf16(row.data() + kNopeDim, kRopeDim, rope.as<std::uint16_t>().data() + token * kRopeDim);
    store_kv_row(row.data(), cache, codes ? code_rows.as<std::uint8_t>().data() + token * kNopeDim : nullptr,
                 codes ? scale_rows.as<std::uint8_t>().data() + token * layout::kKvScales : nullptr,
                 page_bytes.bytes().data() + token * row_bytes);
  }
  write_pages(context, page_bytes);
  context.publish(TensorId::window_normed, std::move(normed));
  context.publish(TensorId::window_kv, std::move(kv));
  if (codes) {
    context.publish(TensorId::window_codes, std::move(code_rows));
    context.publish(TensorId::window_rope, std::move(rope));
    context.publish(TensorId::window_scales, std::move(scale_rows));
  }
  context.publish(TensorId::window_page_bytes, std::move(page_bytes));
}

}  // namespace

void kv_window(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const LayerWeights& weights = context.weights();
  const std::int64_t tokens = context.tokens();
  const auto hidden = context.input(TensorId::hidden).as<std::uint16_t>();
  ZeroedArray<std::uint16_t> raw(static_cast<std::size_t>(tokens * kHeadDim));
  {
    const LinearInput input(context.profile(), hidden.data(), tokens, geometry.dim);
    linear(weights.wkv, all_outputs(weights.wkv), input.activations(), tokens, raw.data(), kHeadDim);
  }
  if (context.profile().get<KvRow>() != KvRow::bf16 || layout::plain(context.profile().get<KvCache>())) {
    return window_rows(context, raw.data());
  }
  Tensor normed(DType::bfloat16, {tokens, kHeadDim});
  Tensor kv(DType::bfloat16, {tokens, kHeadDim});
  Tensor codes(DType::float8_e4m3fn, {tokens, kNopeDim});
  Tensor rope(DType::bfloat16, {tokens, kRopeDim});
  Tensor scales(DType::float8_e8m0fnu, {tokens, layout::kKvScales});
  Tensor page_bytes(DType::uint8, {tokens, layout::kKvRowBytes});
  const NormRotate how{weights.kv_norm.data(), geometry.eps, context.profile().get<NormWeight>(),
                       RopeInput::bf16};
  const QuantFloor floor = kv_floor(context.profile());
  std::uint16_t* const normed_rows = normed.as<std::uint16_t>().data();
  std::uint16_t* const kv_rows = kv.as<std::uint16_t>().data();
  std::uint16_t* const rope_rows = rope.as<std::uint16_t>().data();
  std::uint8_t* const code_rows = codes.as<std::uint8_t>().data();
  std::uint8_t* const scale_rows = scales.as<std::uint8_t>().data();
  std::byte* const byte_rows = page_bytes.bytes().data();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (context.padding(token)) continue;
    std::array<float, kHeadDim> x;
    widen_bf16(raw.data() + token * kHeadDim, kHeadDim, x.data());
    std::uint16_t* row = kv_rows + token * kHeadDim;
    norm_rotate(how, x.data(), kHeadDim, context.state.rope.at(context.position(token)),
                normed_rows + token * kHeadDim, row);
    std::copy_n(row + kNopeDim, kRopeDim, rope_rows + token * kRopeDim);
    encode_kv_row(row, floor, code_rows + token * kNopeDim, scale_rows + token * layout::kKvScales,
                  byte_rows + token * layout::kKvRowBytes);
  }
  write_pages(context, page_bytes);
  context.publish(TensorId::window_normed, std::move(normed));
  context.publish(TensorId::window_kv, std::move(kv));
  context.publish(TensorId::window_codes, std::move(codes));
  context.publish(TensorId::window_rope, std::move(rope));
  context.publish(TensorId::window_scales, std::move(scales));
  context.publish(TensorId::window_page_bytes, std::move(page_bytes));
}

}  // namespace dsv4::reference
