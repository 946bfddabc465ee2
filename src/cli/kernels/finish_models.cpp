#include <algorithm>
#include <array>
#include <cstring>

#include "arith/bf16.hpp"
#include "cli/kernels/stage_models.hpp"
#include "model/layout.hpp"
#include "reference/kernels/sglang_norm_rope_store.hpp"
#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

/// The entries that a step closes: pooled rows in, rows of the cache out. A row's bytes are its values, then
/// its scales: pages of one row.
struct Finish {
  bool indexer;
  bool fp4;  ///< of an index row
  std::int64_t count;
  std::int64_t d;
  std::int64_t row_bytes;
  const float* pooled;
  std::vector<float> weight;
  std::vector<std::int64_t> first;  ///< position of each entry's angle
  Tensor page_bytes;
  std::vector<float> prepared;  ///< [count, d], what is quantised
  std::uint8_t* row(std::int64_t i) { return page_bytes.as<std::uint8_t>().data() + i * row_bytes; }
};

Finish begin(const KernelCall& call) {
  Finish work{};
  work.indexer = call.stage.stage == Stage::indexer_finish;
  work.fp4 = call.profile().get<IndexCache>() == IndexCache::fp4;
  const Tensor& pooled = call.input(work.indexer ? TensorId::indexer_pooled : TensorId::compress_pooled);
  const auto index = call.input(work.indexer ? TensorId::indexer_index : TensorId::compress_index);
  work.count = pooled.dim(0);
  work.d = pooled.dim(1);
  work.row_bytes = work.indexer ? layout::row_form(call.profile().get<IndexCache>()).row_bytes()
                                : std::int64_t{layout::kKvRowBytes};
  work.pooled = pooled.as<float>().data();
  work.weight = widened((work.indexer ? call.weights().indexer_compressor : call.weights().compressor).norm);
  for (const std::int32_t entry : index.as<std::int32_t>()) {
    work.first.push_back(std::int64_t{entry} * ratio(call.kind()));
  }
  work.page_bytes = Tensor(DType::uint8, {work.count, work.row_bytes});
  work.prepared.resize(static_cast<std::size_t>(work.count * work.d));
  return work;
}

void publish_main(const KernelCall& call, Finish& work) {
  const std::int64_t n = work.count;
  Tensor entry(DType::bfloat16, {n, kHeadDim});
  Tensor codes(DType::float8_e4m3fn, {n, kNopeDim});
  Tensor rope(DType::bfloat16, {n, kRopeDim});
  Tensor scales(DType::float8_e8m0fnu, {n, layout::kKvScales});
  std::ranges::transform(work.prepared, entry.as<std::uint16_t>().begin(), kernels::stored_bf16);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint8_t* const row = work.row(i);
    std::copy_n(row, kNopeDim, codes.as<std::uint8_t>().data() + i * kNopeDim);
    std::memcpy(rope.as<std::uint16_t>().data() + i * kRopeDim, row + kNopeDim, 2 * kRopeDim);
    std::copy_n(row + layout::kKvValueBytes, layout::kKvScales,
                scales.as<std::uint8_t>().data() + i * layout::kKvScales);
  }
  call.publish(TensorId::compress_entry, std::move(entry));
  call.publish(TensorId::compress_codes, std::move(codes));
  call.publish(TensorId::compress_rope, std::move(rope));
  call.publish(TensorId::compress_scales, std::move(scales));
  call.publish(TensorId::compress_page_bytes, work.page_bytes);
}

void publish_index(const KernelCall& call, Finish& work) {
  const std::int64_t n = work.count;
  const bool rounded = call.profile().get<IndexRow>() == IndexRow::bf16;
  Tensor entry(rounded ? DType::bfloat16 : DType::float32, {n, kIndexDim});
  Tensor codes(work.fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, {n, kIndexDim});
  Tensor scales(work.fp4 ? DType::float8_e8m0fnu : DType::float32, {n, work.fp4 ? 4 : 1});
  if (rounded) {
    std::ranges::transform(work.prepared, entry.as<std::uint16_t>().begin(), kernels::stored_bf16);
  } else {
    std::ranges::copy(work.prepared, entry.as<float>().begin());
  }
  const std::int64_t scale_bytes = static_cast<std::int64_t>(size_bytes(scales.dtype())) * scales.dim(1);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint8_t* const row = work.row(i);
    std::uint8_t* const out = codes.as<std::uint8_t>().data() + i * kIndexDim;
    if (work.fp4) {
      unpack_e2m1(row, kIndexDim / 2, out);
    } else {
      std::copy_n(row, kIndexDim, out);
    }
    std::memcpy(scales.bytes().data() + i * scale_bytes, row + work.row_bytes - scale_bytes,
                static_cast<std::size_t>(scale_bytes));
  }
  call.publish(TensorId::indexer_entry, std::move(entry));
  call.publish(TensorId::indexer_codes, std::move(codes));
  call.publish(TensorId::indexer_scales, std::move(scales));
  call.publish(TensorId::indexer_page_bytes, work.page_bytes);
}

void end(const KernelCall& call, Finish& work) {
  const auto requests =
      call.input(work.indexer ? TensorId::indexer_request : TensorId::compress_request).as<std::int32_t>();
  const auto indices =
      call.input(work.indexer ? TensorId::indexer_index : TensorId::compress_index).as<std::int32_t>();
  call.rewrite(work.indexer ? Cache::index_entries : Cache::entries, [&](const Write& write) {
    std::size_t i = 0;
    while (i < requests.size() && (requests[i] != write.request || indices[i] != write.index)) ++i;
    require(i < requests.size(), "kernel models: a written entry is not published");
    const auto row = work.page_bytes.bytes().subspan(i * static_cast<std::size_t>(work.row_bytes),
                                                     static_cast<std::size_t>(work.row_bytes));
    return std::vector<std::byte>(row.begin(), row.end());
  });
  if (work.indexer) {
    publish_index(call, work);
  } else {
    publish_main(call, work);
  }
}

}  // namespace

void vllm_finish(const KernelCall& call) {
  Finish work = begin(call);
  kernels::VllmCompressKernel kernel;
  kernel.head_dim = static_cast<int>(work.d);
  kernel.ratio = ratio(call.kind());
  kernel.store = !work.indexer ? kernels::CompressStore::main_fp8
                 : work.fp4    ? kernels::CompressStore::index_mxfp4
                               : kernels::CompressStore::index_fp8;
  const std::int64_t value_bytes =
      !work.indexer ? layout::kKvValueBytes : layout::row_form(call.profile().get<IndexCache>()).value_bytes;
  const std::vector<float> angles = rotation_rows(call, work.first);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < work.count; ++i) {
    float* const row = work.prepared.data() + i * work.d;
    kernel.norm({work.pooled + i * work.d, static_cast<std::size_t>(work.d)}, work.weight.data(),
                call.geometry().eps, row);
    kernels::vllm_compress_rotate(kernel, angles.data() + i * kernels::kRopeTableWidth, row);
    kernels::vllm_compress_store(kernel, row, work.row(i), work.row(i) + value_bytes);
  }
  end(call, work);
}

void sglang_finish(const KernelCall& call) {
  Finish work = begin(call);
  // The kernel's table holds (cos, sin) pairs.
  const std::vector<float> halves = rotation_rows(call, work.first);
  std::vector<float> pairs(halves.size());
  for (std::size_t row = 0; row < pairs.size(); row += kRopeDim) {
    for (std::size_t pair = 0; pair < kRopeDim / 2; ++pair) {
      pairs[row + 2 * pair] = halves[row + pair];
      pairs[row + 2 * pair + 1] = halves[row + kRopeDim / 2 + pair];
    }
  }
  const auto store = !work.indexer ? kernels::sglang_norm_rope_store_flashmla
                     : work.fp4    ? kernels::sglang_norm_rope_store_indexer_fp4
                                   : kernels::sglang_norm_rope_store_indexer_fp8;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < work.count; ++i) {
    constexpr std::int64_t kSlot = 0;
    kernels::SglangStoreTask task;
    task.ratio = ratio(call.kind());
    // One entry whose angle is row 0 of the table.
    const kernels::SglangCompressPlan plan{static_cast<std::uint32_t>(task.ratio), 0, 0, 0, 0};
    task.rows = 1;
    task.input = work.pooled + i * work.d;
    task.weight = work.weight.data();
    task.eps = call.geometry().eps;
    task.freqs = pairs.data() + i * kRopeDim;
    task.extend = {&plan, 1};
    task.out_loc = &kSlot;
    task.cache = work.page_bytes.bytes().subspan(static_cast<std::size_t>(i * work.row_bytes),
                                                 static_cast<std::size_t>(work.row_bytes));
    task.page_rows = 1;
    task.page_bytes = work.row_bytes;
    task.prepared = work.prepared.data() + i * work.d;
    store(task);
  }
  end(call, work);
}

}  // namespace dsv4::cli::kernel_stages
