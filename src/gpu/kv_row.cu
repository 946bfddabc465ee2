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

/// One warp a row.
__global__ void __launch_bounds__(32 * kWarps) kv_row_kernel(KvRowProblem p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float x[kTerms];
#pragma unroll
  for (int j = 0; j < kTerms; ++j) {
    const std::int64_t at = row * kHeadDim + lane + 32 * j;
    x[j] = p.source.bf16 != nullptr ? arith::bf16_to_f32(p.source.bf16[at]) : round_bf16(p.source.f32[at]);
  }
  norm_row(x, p.source.norm, p.eps, lane);
  if (p.normed != nullptr) {
#pragma unroll
    for (int j = 0; j < kTerms; ++j) p.normed[row * kHeadDim + lane + 32 * j] = arith::f32_to_bf16(x[j]);
  }
  rope_row(x, p.source.position[row], p.frequencies, lane);

  std::uint8_t* const bytes = p.bytes + row * layout::kKvRowBytes;
  const std::int32_t slot = p.source.slot[row];
  std::uint8_t* values = nullptr;  // of the slot
  std::uint8_t* slot_scales = nullptr;
  if (slot >= 0) {
    auto* const page = reinterpret_cast<std::uint8_t*>(p.cache.data + slot / p.cache.page_rows * p.cache.pitch);
    const std::int64_t offset = slot % p.cache.page_rows;
    values = page + offset * layout::kKvValueBytes;
    slot_scales = page + std::int64_t{p.cache.page_rows} * layout::kKvValueBytes + offset * layout::kKvScaleBytes;
  }
  std::uint8_t my_scale = 0;  // of block `lane`; byte 7 is spare
#pragma unroll
  for (int block = 0; block < layout::kKvScales; ++block) {
    const float a = x[2 * block];
    const float b = x[2 * block + 1];
    const std::uint8_t scale = block_scale(larger(larger(0.0F, fabsf(a)), fabsf(b)), kAmaxFloorE4m3, 448.0F);
    const float inverse = arith::ue8m0_inverse(scale);
    if (lane == block) my_scale = scale;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int element = lane + 32 * (2 * block + k);
      const std::uint8_t code = arith::f32_to_e4m3((k == 0 ? a : b) * inverse);
      p.codes[row * kNopeDim + element] = code;
      bytes[element] = code;
      if (values != nullptr) values[element] = code;
    }
  }
#pragma unroll
  for (int j = 0; j < kTerms; ++j) p.row[row * kHeadDim + lane + 32 * j] = arith::f32_to_bf16(x[j]);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int element = lane + 32 * k;  // of the rotated part
    const std::uint16_t value = arith::f32_to_bf16(x[kCodeTerms + k]);
    p.rope[row * kRopeDim + element] = value;
    reinterpret_cast<std::uint16_t*>(bytes + kNopeDim)[element] = value;
    if (values == nullptr) continue;
    values[kNopeDim + 2 * element] = static_cast<std::uint8_t>(value);  // a page may lie at an odd address
    values[kNopeDim + 2 * element + 1] = static_cast<std::uint8_t>(value >> 8);
  }
  if (lane < layout::kKvScales) p.scales[row * layout::kKvScales + lane] = my_scale;
  if (lane < layout::kKvScaleBytes) {
    bytes[layout::kKvValueBytes + lane] = my_scale;
    if (slot_scales != nullptr) slot_scales[lane] = my_scale;
  }
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
