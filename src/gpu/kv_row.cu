#include "gpu/kv_row.cuh"

#include "gpu/check.cuh"
#include "gpu/row_device.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr int kWarps = 4;  // a block
constexpr int kTerms = kHeadDim / 32;
constexpr int kCodeTerms = kNopeDim / 32;

struct KvRowProblem {
  KvRowSource source;
  Frequencies frequencies;
  float eps;
  std::int64_t rows;
  CacheMemory cache;
  std::uint16_t* normed;  // or null
  std::uint16_t* row;
  std::uint8_t* codes;
  std::uint16_t* rope;
  std::uint8_t* scales;
  std::uint8_t* bytes;
};

/// A row on its way out: the bytes of its slot, then its bf16 values.
struct alignas(16) StagedRow {
  std::uint8_t bytes[(layout::kKvRowBytes + 15) / 16 * 16];
  std::uint16_t values[kHeadDim];
};

/// One warp a row. Results are put together in shared memory, so that they leave in wide words.
__global__ void __launch_bounds__(32 * kWarps) kv_row_kernel(KvRowProblem p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __shared__ StagedRow staged_rows[kWarps];
  StagedRow& staged = staged_rows[threadIdx.x / 32];
  const std::int32_t position = p.source.position[row];
  const std::int32_t slot = p.source.slot[row];
  const std::int64_t first = row * kHeadDim + lane;
  float x[kTerms];
  if (p.source.bf16 != nullptr) {
#pragma unroll
    for (int j = 0; j < kTerms; ++j) x[j] = arith::bf16_to_f32(p.source.bf16[first + 32 * j]);
  } else {
#pragma unroll
    for (int j = 0; j < kTerms; ++j) x[j] = p.source.f32[first + 32 * j];
    round_bf16(x);
  }
  norm_row(x, p.source.norm, p.eps, lane);
  const auto put_values = [&](std::uint16_t* to) {
#pragma unroll
    for (int j = 0; j < kTerms; ++j) staged.values[lane + 32 * j] = bf16_bits(x[j]);
    __syncwarp();
    put_words<uint4, sizeof(staged.values)>(to + row * kHeadDim, staged.values, lane);
    __syncwarp();
  };
  if (p.normed != nullptr) put_values(p.normed);
  rope_row(x, position, p.frequencies, lane);

  float my_amax = 0.0F;  // of block `lane`
#pragma unroll
  for (int block = 0; block < layout::kKvScales; ++block) {
    const float amax = warp_amax(larger(larger(0.0F, fabsf(x[2 * block])), fabsf(x[2 * block + 1])));
    if (lane == block) my_amax = amax;
  }
  const std::uint8_t my_scale = arith::ue8m0_scale_for(larger(kAmaxFloorE4m3, my_amax), 448.0F);
  const float my_inverse = arith::ue8m0_inverse(my_scale);
#pragma unroll
  for (int block = 0; block < layout::kKvScales; ++block) {
    const float inverse = __shfl_sync(0xFFFFFFFFU, my_inverse, block);
    staged.bytes[lane + 64 * block] = arith::f32_to_e4m3(x[2 * block] * inverse);
    staged.bytes[lane + 64 * block + 32] = arith::f32_to_e4m3(x[2 * block + 1] * inverse);
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {  // halves of the rotated part
    reinterpret_cast<std::uint16_t*>(staged.bytes + kNopeDim)[lane + 32 * k] = bf16_bits(x[kCodeTerms + k]);
  }
  if (lane < layout::kKvScaleBytes) {  // the last one is spare
    staged.bytes[layout::kKvValueBytes + lane] = lane < layout::kKvScales ? my_scale : std::uint8_t{0};
  }
  put_values(p.row);  // the warp's stores to shared memory are done behind this

  const std::uint8_t* const rope = staged.bytes + kNopeDim;
  const std::uint8_t* const scales = staged.bytes + layout::kKvValueBytes;
  put_words<uint4, kNopeDim>(p.codes + row * kNopeDim, staged.bytes, lane);
  put_words<uint4, 2 * kRopeDim>(p.rope + row * kRopeDim, rope, lane);
  put_words<std::uint8_t, layout::kKvScales>(p.scales + row * layout::kKvScales, scales, lane);
  put_words<uint2, layout::kKvRowBytes>(p.bytes + row * layout::kKvRowBytes, staged.bytes, lane);
  if (slot < 0) return;
  auto* const page = reinterpret_cast<std::uint8_t*>(p.cache.data + slot / p.cache.page_rows * p.cache.pitch);
  const std::int64_t offset = slot % p.cache.page_rows;
  put_in_page<uint4, layout::kKvValueBytes>(page + offset * layout::kKvValueBytes, staged.bytes, lane);
  put_in_page<uint2, layout::kKvScaleBytes>(
      page + std::int64_t{p.cache.page_rows} * layout::kKvValueBytes + offset * layout::kKvScaleBytes, scales, lane);
}

}  // namespace

void publish_kv_rows(CudaEngine& engine, int layer, const KvRowTensors& ids, const KvRowSource& source,
                     std::int64_t rows, const CacheMemory& cache) {
  KvRowProblem p{};
  p.source = source;
  p.frequencies = rope_frequencies(engine.geometry(), engine.kind(layer));
  p.eps = engine.geometry().eps;
  p.rows = rows;
  p.cache = cache;
  if (ids.normed) {
    p.normed = engine.publish(layer, *ids.normed, DType::bfloat16, {rows, kHeadDim}).as<std::uint16_t>();
  }
  p.row = engine.publish(layer, ids.row, DType::bfloat16, {rows, kHeadDim}).as<std::uint16_t>();
  p.codes = engine.publish(layer, ids.codes, DType::float8_e4m3fn, {rows, kNopeDim}).as<std::uint8_t>();
  p.rope = engine.publish(layer, ids.rope, DType::bfloat16, {rows, kRopeDim}).as<std::uint16_t>();
  p.scales = engine.publish(layer, ids.scales, DType::float8_e8m0fnu, {rows, layout::kKvScales}).as<std::uint8_t>();
  p.bytes = engine.publish(layer, ids.page_bytes, DType::uint8, {rows, layout::kKvRowBytes}).as<std::uint8_t>();
  if (rows == 0) return;
  kv_row_kernel<<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), 32 * kWarps, 0, engine.stream()>>>(p);
  DSV4_LAUNCHED("kv_row_kernel");
}

}  // namespace dsv4::gpu
