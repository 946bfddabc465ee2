#include <algorithm>
#include <cmath>
#include <cstring>

#include "arith/bf16.hpp"
#include "cli/kernels/stage_models.hpp"
#include "model/layout.hpp"
#include "reference/kernels/vllm_indexer_query.hpp"
#include "reference/kernels/vllm_qk_rmsnorm.hpp"
#include "reference/kernels/vllm_qnorm_rope_kv_insert.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

/// RMS norm of every row of a bf16 product by vLLM's kernel.
void norm_rows(const KernelCall& call, const std::vector<std::uint16_t>& weight,
               const std::vector<std::uint16_t>& rows, std::uint16_t* out) {
  const std::vector<float> wide = widened(weight);
  kernels::VllmRmsNorm norm;
  norm.weight = wide;
  norm.eps = call.geometry().eps;
  const auto size = std::ssize(weight);
#pragma omp parallel for schedule(static)
  for (std::int64_t token = 0; token < call.tokens(); ++token)
    kernels::vllm_rmsnorm_row(norm, rows.data() + token * size, out + token * size);
}

}  // namespace

void vllm_query_latent(const KernelCall& call) {
  const LayerWeights& weights = call.weights();
  const std::vector<std::uint16_t> product = bf16_product(call, weights.wq_a, call.input(TensorId::hidden));
  Tensor latent(DType::bfloat16, {call.tokens(), weights.wq_a.rows});
  norm_rows(call, weights.q_norm, product, latent.as<std::uint16_t>().data());
  call.publish(TensorId::q_latent, std::move(latent));
}

void vllm_query(const KernelCall& call) {
  const std::int64_t heads = call.geometry().heads;
  const Tensor& raw = call.input(TensorId::q_raw);
  const std::vector<float> angles = rotation_rows(call, row_positions(call));
  Tensor q(DType::bfloat16, raw.shape());
  Tensor normed(DType::float32, raw.shape());
  const std::int64_t width = heads * kHeadDim;
#pragma omp parallel for schedule(static)
  for (std::int64_t token = 0; token < call.tokens(); ++token) {
    constexpr std::int64_t kFirst = 0;
    const auto row = raw.as<std::uint16_t>().subspan(static_cast<std::size_t>(token * width),
                                                     static_cast<std::size_t>(width));
    kernels::VllmQueryAndKv in;
    in.heads = in.padded_heads = heads;
    in.q = row;
    in.positions = {&kFirst, 1};
    in.cos_sin = std::span(angles).subspan(static_cast<std::size_t>(token * kernels::kRopeTableWidth),
                                           kernels::kRopeTableWidth);
    in.eps = call.geometry().eps;
    kernels::vllm_qnorm_rope_kv_insert(
        in, {}, q.as<std::uint16_t>().subspan(static_cast<std::size_t>(token * width), row.size()), {});
    // What the kernel holds before it rotates.
    float* const out = normed.as<float>().data() + token * width;
    for (std::int64_t at = 0; at < width; at += kHeadDim) {
      const std::vector<float> head = widened(row.subspan(static_cast<std::size_t>(at), kHeadDim));
      const float scale = in.query_scale(head, in.eps);
      std::ranges::transform(head, out + at, [scale](float x) { return x * scale; });
    }
  }
  call.publish(TensorId::q_normed, std::move(normed));
  call.publish(TensorId::q, std::move(q));
}

void vllm_window(const KernelCall& call) {
  const LayerWeights& weights = call.weights();
  const std::int64_t tokens = call.tokens();
  const std::vector<std::uint16_t> product = bf16_product(call, weights.wkv, call.input(TensorId::hidden));
  Tensor normed(DType::bfloat16, {tokens, kHeadDim});
  norm_rows(call, weights.kv_norm, product, normed.as<std::uint16_t>().data());
  const std::vector<float> angles = rotation_rows(call, row_positions(call));
  const std::vector<std::int64_t> numbers = counting(tokens);
  Tensor page_bytes(DType::uint8, {tokens, layout::kKvRowBytes});
  kernels::VllmQueryAndKv in;
  in.kv = normed.as<std::uint16_t>();
  in.positions = numbers;
  in.slot_mapping = numbers;
  in.cos_sin = angles;
  // Pages of one row: a row's values, then its scales.
  kernels::vllm_qnorm_rope_kv_insert(in, kernels::main_pages(1, layout::kKvRowBytes), {},
                                     page_bytes.as<std::uint8_t>());
  Tensor kv = normed;  // dims 0..447 go on as they are
  Tensor codes(DType::float8_e4m3fn, {tokens, kNopeDim});
  Tensor rope(DType::bfloat16, {tokens, kRopeDim});
  Tensor scales(DType::float8_e8m0fnu, {tokens, layout::kKvScales});
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::uint8_t* const row = page_bytes.as<std::uint8_t>().data() + token * layout::kKvRowBytes;
    std::copy_n(row, kNopeDim, codes.as<std::uint8_t>().data() + token * kNopeDim);
    std::copy_n(row + layout::kKvValueBytes, layout::kKvScales,
                scales.as<std::uint8_t>().data() + token * layout::kKvScales);
    std::memcpy(rope.as<std::uint16_t>().data() + token * kRopeDim, row + kNopeDim, 2 * kRopeDim);
    std::memcpy(kv.as<std::uint16_t>().data() + token * kHeadDim + kNopeDim, row + kNopeDim, 2 * kRopeDim);
  }
  call.rewrite(Cache::window, [&](const Write& write) {
    const auto row = page_bytes.bytes().subspan(
        static_cast<std::size_t>(call.token_of(write.request, write.index) * layout::kKvRowBytes),
        layout::kKvRowBytes);
    return std::vector<std::byte>(row.begin(), row.end());
  });
  call.publish(TensorId::window_normed, std::move(normed));
  call.publish(TensorId::window_kv, std::move(kv));
  call.publish(TensorId::window_codes, std::move(codes));
  call.publish(TensorId::window_rope, std::move(rope));
  call.publish(TensorId::window_scales, std::move(scales));
  call.publish(TensorId::window_page_bytes, std::move(page_bytes));
}

void vllm_index_query(const KernelCall& call) {
  const LayerWeights& weights = call.weights();
  const std::int64_t tokens = call.tokens();
  const std::int64_t heads = call.geometry().index_heads;
  const bool fp4 = call.profile().get<IndexCache>() == IndexCache::fp4;
  const std::vector<std::uint16_t> product =
      bf16_product(call, weights.indexer_wq_b, call.input(TensorId::q_latent));
  const std::vector<float> projected =
      widened(bf16_product(call, weights.indexer_weights_proj, call.input(TensorId::hidden), true));
  const std::vector<float> angles = rotation_rows(call, row_positions(call));
  const std::vector<std::int64_t> numbers = counting(tokens);
  kernels::VllmIndexerQuery in;
  in.heads = heads;
  in.q = product;
  in.positions = numbers;
  in.cos_sin = angles;
  in.weights = projected;
  in.softmax_scale = static_cast<float>(1 / std::sqrt(double{kIndexDim}));
  in.head_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads)));
  Tensor entry(DType::bfloat16, {tokens, heads, kIndexDim});
  Tensor codes(fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, {tokens, heads, kIndexDim});
  Tensor scales(fp4 ? DType::float8_e8m0fnu : DType::float32, {tokens, heads, fp4 ? 4 : 1});
  Tensor head_weights(DType::float32, {tokens, heads});
  if (fp4) {
    const kernels::VllmIndexerQueryMxfp4 out = kernels::vllm_indexer_query_mxfp4(in);
    unpack_e2m1(out.codes.data(), std::ssize(out.codes), codes.as<std::uint8_t>().data());
    std::ranges::copy(out.scales, scales.as<std::uint8_t>().begin());
    std::ranges::copy(out.weights, head_weights.as<float>().begin());
    std::ranges::copy(out.rotated, entry.as<std::uint16_t>().begin());
  } else {
    const kernels::VllmIndexerQueryFp8 out = kernels::vllm_indexer_query_fp8(in);
    std::ranges::copy(out.codes, codes.as<std::uint8_t>().begin());
    std::ranges::copy(out.scales, scales.as<float>().begin());
    std::ranges::copy(out.weights, head_weights.as<float>().begin());
    std::ranges::copy(out.rotated, entry.as<std::uint16_t>().begin());
  }
  call.publish(TensorId::query_entry, std::move(entry));
  call.publish(TensorId::query_codes, std::move(codes));
  call.publish(TensorId::query_scales, std::move(scales));
  call.publish(TensorId::query_weights, std::move(head_weights));
}

}  // namespace dsv4::cli::kernel_stages
