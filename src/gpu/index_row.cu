#include "gpu/check.cuh"
#include "gpu/index_row.cuh"
#include "gpu/row_device.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

unsigned blocks_for(std::int64_t items) { return static_cast<unsigned>((items + 255) / 256); }

__global__ void widen_scales_kernel(const std::uint8_t* bytes, float* scales, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) scales[i] = arith::ue8m0_to_f32(bytes[i]);
}

constexpr int kWarps = 4;  // a block

struct IndexKeyProblem {
  IndexKeySource source;
  Frequencies frequencies;
  float eps;
  bool rotate;
  std::int64_t rows;
  CacheMemory cache;
  std::uint16_t* entry;
  std::uint8_t* codes;  // [rows, 128], one a byte
  void* scales;         // f32 [rows, 1] or ue8m0 [rows, 4]
  std::uint8_t* bytes;  // [rows, 132 or 68]
};

/// A row on its way out: the bytes of its slot, its codes one a byte, its bf16 values.
struct alignas(16) StagedKey {
  std::uint8_t bytes[(layout::kIndexFp8RowBytes + 15) / 16 * 16];
  std::uint8_t codes[kIndexDim];
  std::uint16_t values[kIndexDim];
};

/// One warp a row; lane holds elements lane + 32 j. Results are put together in shared memory, so that they leave in
/// wide words.
template <bool kFp4>
__global__ void __launch_bounds__(32 * kWarps) index_key_kernel(IndexKeyProblem p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kValueBytes = kFp4 ? layout::kIndexFp4ValueBytes : layout::kIndexFp8ValueBytes;
  constexpr int kRowBytes = kFp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes;
  __shared__ StagedKey staged_keys[kWarps];
  StagedKey& staged = staged_keys[threadIdx.x / 32];
  float x[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = round_bf16(p.source.pooled[row * kIndexDim + lane + 32 * j]);
  norm_row(x, p.source.norm, p.eps, lane);
  rope_row(x, p.source.position[row], p.frequencies, lane);
  if (p.rotate) hadamard_row(x, lane);
#pragma unroll
  for (int j = 0; j < 4; ++j) staged.values[lane + 32 * j] = arith::f32_to_bf16(x[j]);

  if constexpr (kFp4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint8_t scale = block_scale(larger(0.0F, fabsf(x[j])), kAmaxFloorE2m1, 6.0F);
      const std::uint8_t code = arith::f32_to_e2m1(x[j] * arith::ue8m0_inverse(scale));
      staged.codes[lane + 32 * j] = code;
      const std::uint32_t high = __shfl_down_sync(0xFFFFFFFFU, std::uint32_t{code}, 1);
      if (lane % 2 == 0) staged.bytes[16 * j + lane / 2] = static_cast<std::uint8_t>(code | high << 4);
      if (lane == j) staged.bytes[kValueBytes + j] = scale;
    }
  } else {
    float amax = 0.0F;
#pragma unroll
    for (const float v : x) amax = larger(amax, fabsf(v));
    const std::uint8_t scale = block_scale(amax, kAmaxFloorE4m3, 448.0F);
    const float inverse = arith::ue8m0_inverse(scale);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      staged.bytes[lane + 32 * j] = staged.codes[lane + 32 * j] = arith::f32_to_e4m3(x[j] * inverse);
    }
    if (lane == 0) *reinterpret_cast<float*>(staged.bytes + kValueBytes) = arith::ue8m0_to_f32(scale);
  }
  __syncwarp();

  constexpr int kScaleBytes = kRowBytes - kValueBytes;
  const std::uint8_t* const scales = staged.bytes + kValueBytes;
  put_bytes(p.entry + row * kIndexDim, staged.values, sizeof(staged.values), lane);
  put_bytes(p.codes + row * kIndexDim, staged.codes, sizeof(staged.codes), lane);
  put_bytes(static_cast<std::uint8_t*>(p.scales) + row * kScaleBytes, scales, kScaleBytes, lane);
  put_bytes(p.bytes + row * kRowBytes, staged.bytes, kRowBytes, lane);
  const std::int32_t slot = p.source.slot[row];
  if (slot < 0) return;
  auto* const page = reinterpret_cast<std::uint8_t*>(p.cache.data + slot / p.cache.page_rows * p.cache.pitch);
  const std::int64_t offset = slot % p.cache.page_rows;
  put_bytes(page + offset * kValueBytes, staged.bytes, kValueBytes, lane);
  put_bytes(page + std::int64_t{p.cache.page_rows} * kValueBytes + offset * kScaleBytes, scales, kScaleBytes, lane);
}

}  // namespace

void publish_index_rows(CudaEngine& engine, int layer, const IndexRowTensors& ids, const std::uint16_t* vectors,
                        std::vector<std::int64_t> shape) {
  const bool fp4 = engine.profile().get<IndexCache>() == IndexCache::fp4;
  const std::int64_t rows = Tensor::count(shape);
  std::vector<std::int64_t> code_shape = shape;
  code_shape.push_back(kIndexDim);
  std::vector<std::int64_t> scale_shape = shape;
  scale_shape.push_back(fp4 ? kIndexDim / layout::kIndexFp4Block : 1);
  const DeviceTensor codes =
      engine.publish(layer, ids.codes, fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, code_shape);
  const DeviceTensor scales =
      engine.publish(layer, ids.scales, fp4 ? DType::float8_e8m0fnu : DType::float32, scale_shape);
  if (rows == 0) return;
  if (fp4) {
    quantise_e2m1(vectors, rows, kIndexDim, codes.as<std::uint8_t>(), scales.as<std::uint8_t>(), engine.stream());
    return;
  }
  auto* bytes = engine.memory().get<std::uint8_t>("scratch/index_scales", static_cast<std::size_t>(rows));
  quantise_e4m3(vectors, kIndexDim, rows, kIndexDim, kIndexDim, codes.as<std::uint8_t>(), kIndexDim, bytes, 1,
                engine.stream());
  widen_scales_kernel<<<blocks_for(rows), 256, 0, engine.stream()>>>(bytes, scales.as<float>(), rows);
  DSV4_LAUNCHED("widen_scales_kernel");
}

void publish_index_keys(CudaEngine& engine, int layer, const IndexKeySource& source, std::int64_t rows,
                        const CacheMemory& cache) {
  const bool fp4 = engine.profile().get<IndexCache>() == IndexCache::fp4;
  IndexKeyProblem p{};
  p.source = source;
  p.frequencies = rope_frequencies(engine.geometry(), engine.kind(layer));
  p.eps = engine.geometry().eps;
  p.rotate = engine.profile().get<IndexRotation>() == IndexRotation::both;
  p.rows = rows;
  p.cache = cache;
  p.entry = engine.publish(layer, TensorId::indexer_entry, DType::bfloat16, {rows, kIndexDim}).as<std::uint16_t>();
  p.codes = engine.publish(layer, TensorId::indexer_codes, fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn,
                           {rows, kIndexDim}).as<std::uint8_t>();
  p.scales = engine.publish(layer, TensorId::indexer_scales, fp4 ? DType::float8_e8m0fnu : DType::float32,
                            {rows, fp4 ? kIndexDim / layout::kIndexFp4Block : 1}).data;
  p.bytes = engine.publish(layer, TensorId::indexer_page_bytes, DType::uint8,
                           {rows, cache.value_bytes + cache.scale_bytes}).as<std::uint8_t>();
  if (rows == 0) return;
  const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
  if (fp4) {
    index_key_kernel<true><<<blocks, 32 * kWarps, 0, engine.stream()>>>(p);
  } else {
    index_key_kernel<false><<<blocks, 32 * kWarps, 0, engine.stream()>>>(p);
  }
  DSV4_LAUNCHED("index_key_kernel");
}

}  // namespace dsv4::gpu
