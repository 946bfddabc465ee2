#include <algorithm>
#include <array>

#include "reference/hadamard.hpp"
#include "reference/indexer_scores.hpp"
#include "reference/kv_row.hpp"
#include "reference/profile_rows.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

constexpr int kRopeFirst = kIndexDim - kRopeDim;

/// The query's product as bf16 rows, RoPE on dims 64..127 applied.
ZeroedArray<std::uint16_t> project_bf16(const StageContext& context, const LinearInput& input) {
  const Matrix& weight = context.weights().indexer_wq_b;
  const std::int64_t width = weight.rows;
  ZeroedArray<std::uint16_t> rows(static_cast<std::size_t>(context.tokens() * width));
  linear(weight, all_outputs(weight), input.activations(), context.tokens(), rows.data(), width);
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    if (context.padding(token)) continue;
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t at = token * width; at < (token + 1) * width; at += kIndexDim) {
      rope_rotate(rows.data() + at + kRopeFirst, angles, RopeDirection::forward);
    }
  }
  return rows;
}

/// The bf16 product rotated, and by the Hadamard matrix, without a rounding (axis index_row f32).
void project_f32(const StageContext& context, const LinearInput& input, bool rotate,
                 std::vector<float>& rows) {
  const Matrix& weight = context.weights().indexer_wq_b;
  const std::int64_t width = weight.rows;
  std::vector<std::uint16_t> product(static_cast<std::size_t>(context.tokens() * width));
  rows.resize(product.size());
  linear(weight, all_outputs(weight), input.activations(), context.tokens(), product.data(), width);
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    if (context.padding(token)) continue;
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t at = token * width; at < (token + 1) * width; at += kIndexDim) {
      widen_bf16(product.data() + at, kIndexDim, rows.data() + at);
      rope_rotate(rows.data() + at + kRopeFirst, angles, RopeDirection::forward);
      if (rotate) hadamard128(rows.data() + at);
    }
  }
}

/// Queries of profiles that go beyond section 13 (axes index_row, index_scale, fp4_rule, index_cache none and
/// f16): quantised from f32 values; without a quantiser `codes` are the values themselves.
void query_rows(StageContext& context, const LinearInput& input, const std::uint16_t* projected) {
  const Profile& profile = context.profile();
  const IndexForm index = index_form(profile);
  const std::int64_t heads = context.geometry().index_heads;
  const std::int64_t vectors = context.tokens() * heads;
  const bool rotate = profile.get<IndexRotation>() == IndexRotation::both;
  const bool rounded = profile.get<IndexRow>() != IndexRow::f32;
  std::vector<float> rows;
  if (rounded) {
    ZeroedArray<std::uint16_t> narrow = project_bf16(context, input);
    rows.resize(narrow.size());
    for (std::int64_t at = 0; at < vectors; ++at) {
      std::uint16_t* const row = narrow.data() + at * kIndexDim;
      if (rotate) hadamard128(row, row);
      widen_bf16(row, kIndexDim, rows.data() + at * kIndexDim);
    }
  } else {
    project_f32(context, input, rotate, rows);
  }
  const std::vector<std::int64_t> shape{context.tokens(), heads, kIndexDim};
  Tensor entry(rounded ? DType::bfloat16 : DType::float32, shape);
  if (rounded) {
    round_bf16(rows.data(), std::ssize(rows), entry.as<std::uint16_t>().data());
  } else {
    std::ranges::copy(rows, entry.as<float>().begin());
  }
  Tensor weights(DType::float32, {context.tokens(), heads});
  float* const weight_rows = weights.as<float>().data();
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    index_head_weights(projected + token * heads, static_cast<int>(heads), nullptr, profile.get<IndexRound>(),
                       weight_rows + token * heads);
  }
  if (index.plain()) {
    context.publish(TensorId::query_codes, entry);
  } else {
    const int blocks = index_scales(index.cache);
    Tensor codes(index.fp4() ? DType::float4_e2m1fn : DType::float8_e4m3fn, shape);
    Tensor scales(index.fp4() ? DType::float8_e8m0fnu : DType::float32, {context.tokens(), heads, blocks});
    for (std::int64_t at = 0; at < vectors; ++at) {
      const IndexCodes row = quantize_index(rows.data() + at * kIndexDim, index);
      std::ranges::copy(row.codes, codes.as<std::uint8_t>().begin() + at * kIndexDim);
      if (index.fp4()) {
        std::ranges::copy(row.scale_bytes, scales.as<std::uint8_t>().begin() + at * blocks);
      } else {
        scales.as<float>()[static_cast<std::size_t>(at)] = row.scale;
        weight_rows[at] = weight_rows[at] * row.scale;
      }
    }
    context.publish(TensorId::query_codes, std::move(codes));
    context.publish(TensorId::query_scales, std::move(scales));
  }
  context.publish(TensorId::query_entry, std::move(entry));
  context.publish(TensorId::query_weights, std::move(weights));
}

/// What section 13 says, which the fast path below computes.
bool as_canonical(const Profile& profile) {
  return profile.get<IndexRow>() != IndexRow::f32 && !layout::plain(profile.get<IndexCache>()) &&
         profile.get<IndexScale>() == IndexScale::ue8m0 && profile.get<Fp4Rule>() == Fp4Rule::nearest_even;
}

}  // namespace

void indexer_query(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const Profile& profile = context.profile();
  const std::int64_t tokens = context.tokens();
  const std::int64_t heads = geometry.index_heads;
  const IndexCache format = profile.get<IndexCache>();
  const bool fp4 = format == IndexCache::fp4;
  const bool rotate = profile.get<IndexRotation>() == IndexRotation::both;
  const int blocks = index_scales(format);
  const auto latent = context.input(TensorId::q_latent).as<std::uint16_t>();
  const auto hidden = context.input(TensorId::hidden).as<std::uint16_t>();

  std::vector<std::uint16_t> projected(static_cast<std::size_t>(tokens * heads));
  Activations input;
  input.bf16 = hidden.data();
  const Matrix& weights_proj = context.weights().indexer_weights_proj;
  linear(weights_proj, all_outputs(weights_proj), input, tokens, projected.data(), heads);
  ZeroedArray<std::uint16_t> rows;
  {
    const LinearInput latent_input(profile, latent.data(), tokens, geometry.q_lora);
    if (!as_canonical(profile)) return query_rows(context, latent_input, projected.data());
    rows = project_bf16(context, latent_input);
  }

  Tensor codes(fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, {tokens, heads, kIndexDim});
  Tensor scales(fp4 ? DType::float8_e8m0fnu : DType::float32, {tokens, heads, blocks});
  Tensor weights(DType::float32, {tokens, heads});
  std::vector<std::uint8_t> scale_bytes(static_cast<std::size_t>(tokens * heads * blocks));
  std::uint8_t* const code_rows = codes.as<std::uint8_t>().data();
  float* const weight_rows = weights.as<float>().data();
  const IndexRound round = profile.get<IndexRound>();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t at = token * heads; at < (token + 1) * heads; ++at) {
      std::uint16_t* row = rows.data() + at * kIndexDim;
      if (rotate) hadamard128(row, row);
      quantize_index(row, format, code_rows + at * kIndexDim, scale_bytes.data() + at * blocks);
    }
    index_head_weights(projected.data() + token * heads, static_cast<int>(heads),
                       fp4 ? nullptr : scale_bytes.data() + token * heads, round,
                       weight_rows + token * heads);
  }
  if (fp4) {
    std::ranges::copy(scale_bytes, scales.as<std::uint8_t>().begin());
  } else {
    widen_scales(scale_bytes.data(), std::ssize(scale_bytes), scales.as<float>().data());
  }
  if (context.wanted(TensorId::query_entry)) {
    Tensor entry(DType::bfloat16, {tokens, heads, kIndexDim});
    std::ranges::copy(rows, entry.as<std::uint16_t>().begin());
    context.publish(TensorId::query_entry, std::move(entry));
  }
  context.publish(TensorId::query_codes, std::move(codes));
  context.publish(TensorId::query_scales, std::move(scales));
  context.publish(TensorId::query_weights, std::move(weights));
}

}  // namespace dsv4::reference
