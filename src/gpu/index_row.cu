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

constexpr int kThreads = 128;
constexpr int kLanes = 8;                   // of a row
constexpr int kTerms = kIndexDim / kLanes;  // of a lane: term 4 j + i is element lane + 8 i + 32 j
constexpr int kRows = kThreads / kLanes;    // of a block

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

/// A row on its way out: the bytes of its slot, its bf16 values and, where two codes share a byte, its codes.
struct alignas(16) StagedKey {
  std::uint8_t bytes[(layout::kIndexFp8RowBytes + 15) / 16 * 16];
  std::uint16_t values[kIndexDim];
  std::uint8_t codes[kIndexDim];
};

/// RMS norm of section 8. A lane's terms of one i are those of lane `lane + 8 i` of section 5, so that the first two
/// levels of the tree lie in the lane.
__device__ __forceinline__ void norm_terms(float (&x)[kTerms], const std::uint16_t* weight, float eps, int lane) {
  float a[4] = {};
#pragma unroll
  for (int t = 0; t < kTerms; ++t) a[t % 4] = arith::fma(x[t], x[t], a[t % 4]);
  float sum = (a[0] + a[2]) + (a[1] + a[3]);
#pragma unroll
  for (int s = 4; s > 0; s /= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFU, sum, s);
  const float g = reciprocal_root(__fdiv_rn(sum, static_cast<float>(kIndexDim)) + eps);
#pragma unroll
  for (int t = 0; t < kTerms; ++t) x[t] = x[t] * g * arith::bf16_to_f32(weight[lane + kLanes * t]);
  round_bf16(x);
}

/// Rotation of the last 64 elements (section 9): the upper eight terms, term 8 + m of pair lane / 2 + 4 m. Two
/// neighbours hold the two elements of a pair; each makes every second angle.
__device__ __forceinline__ void rope_terms(float (&x)[kTerms], std::int32_t position, const Frequencies& frequencies,
                                           int lane) {
  const bool odd = lane % 2 != 0;
  arith::SinCos turn[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    turn[q] = arith::sin_cos(static_cast<float>(position) * frequencies.f[lane / 2 + 8 * q + (odd ? 4 : 0)]);
  }
  float turned[kTerms / 2];
#pragma unroll
  for (int m = 0; m < kTerms / 2; ++m) {
    const arith::SinCos mine = turn[m / 2];
    const float cosine = __shfl_xor_sync(0xFFFFFFFFU, mine.cos, 1);
    const float sine = __shfl_xor_sync(0xFFFFFFFFU, mine.sin, 1);
    const bool own = odd == (m % 2 != 0);
    const float v = x[kTerms / 2 + m];
    const float other = __shfl_xor_sync(0xFFFFFFFFU, v, 1) * (own ? mine.sin : sine);
    turned[m] = arith::fma(v, own ? mine.cos : cosine, odd ? other : -other);
  }
  round_bf16(turned);
#pragma unroll
  for (int m = 0; m < kTerms / 2; ++m) x[kTerms / 2 + m] = turned[m];
}

/// Hadamard rotation (section 10): three levels among lanes, four in the lane.
__device__ __forceinline__ void hadamard_terms(float (&x)[kTerms], int lane) {
#pragma unroll
  for (int h = 1; h < kLanes; h *= 2) {
    const float sign = (lane & h) == 0 ? 1.0F : -1.0F;
#pragma unroll
    for (float& v : x) v = arith::fma(sign, v, __shfl_xor_sync(0xFFFFFFFFU, v, h));  // the other's plus or minus mine
  }
  hadamard_in_lane(x);
}

/// Scale byte of a block that eight lanes hold, from the largest magnitude in each.
__device__ __forceinline__ std::uint8_t scale_of(float amax, float floor, float largest) {
#pragma unroll
  for (int s = 4; s > 0; s /= 2) amax = larger(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, s));
  return arith::ue8m0_scale_for(larger(floor, amax), largest);
}

/// Eight lanes a row. Results are put together in shared memory, so that they leave in wide words.
template <bool kFp4>
__global__ void __launch_bounds__(kThreads) index_key_kernel(IndexKeyProblem p) {
  constexpr int kValueBytes = kFp4 ? layout::kIndexFp4ValueBytes : layout::kIndexFp8ValueBytes;
  constexpr int kRowBytes = kFp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes;
  constexpr int kScaleBytes = kRowBytes - kValueBytes;
  __shared__ StagedKey staged_keys[kRows];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  StagedKey& staged = staged_keys[threadIdx.x / kLanes];
  const std::int64_t here = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const std::int64_t row = min(here, p.rows - 1);  // a warp's lanes stay together
  float x[kTerms];
#pragma unroll
  for (int t = 0; t < kTerms; ++t) x[t] = p.source.pooled[row * kIndexDim + lane + kLanes * t];
  round_bf16(x);
  norm_terms(x, p.source.norm, p.eps, lane);
  rope_terms(x, p.source.position[row], p.frequencies, lane);
  if (p.rotate) hadamard_terms(x, lane);
#pragma unroll
  for (int t = 0; t < kTerms; ++t) staged.values[lane + kLanes * t] = bf16_bits(x[t]);

  if constexpr (kFp4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // blocks of 32
      float amax = 0.0F;
#pragma unroll
      for (int i = 0; i < 4; ++i) amax = larger(amax, fabsf(x[4 * j + i]));
      const std::uint8_t scale = scale_of(amax, kAmaxFloorE2m1, 6.0F);
      const float inverse = arith::ue8m0_inverse(scale);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint8_t code = arith::f32_to_e2m1(x[4 * j + i] * inverse);
        const int element = lane + 8 * i + 32 * j;
        staged.codes[element] = code;
        const std::uint32_t high = __shfl_xor_sync(0xFFFFFFFFU, std::uint32_t{code}, 1);
        if (lane % 2 == 0) staged.bytes[element / 2] = static_cast<std::uint8_t>(code | high << 4);
      }
      if (lane == j) staged.bytes[kValueBytes + j] = scale;
    }
  } else {
    float amax = 0.0F;
#pragma unroll
    for (const float v : x) amax = larger(amax, fabsf(v));
    const std::uint8_t scale = scale_of(amax, kAmaxFloorE4m3, 448.0F);
    const float inverse = arith::ue8m0_inverse(scale);
#pragma unroll
    for (int t = 0; t < kTerms; ++t) staged.bytes[lane + kLanes * t] = arith::f32_to_e4m3(x[t] * inverse);
    if (lane == 0) *reinterpret_cast<float*>(staged.bytes + kValueBytes) = arith::ue8m0_to_f32(scale);
  }
  __syncwarp();
  if (here >= p.rows) return;

  const std::uint8_t* const codes = kFp4 ? staged.codes : staged.bytes;
  const std::uint8_t* const scales = staged.bytes + kValueBytes;
  put_words<uint4, sizeof(staged.values), kLanes>(p.entry + row * kIndexDim, staged.values, lane);
  put_words<uint4, kIndexDim, kLanes>(p.codes + row * kIndexDim, codes, lane);
  put_words<std::uint32_t, kScaleBytes, kLanes>(static_cast<std::uint8_t*>(p.scales) + row * kScaleBytes, scales, lane);
  put_words<std::uint32_t, kRowBytes, kLanes>(p.bytes + row * kRowBytes, staged.bytes, lane);
  const std::int32_t slot = p.source.slot[row];
  if (slot < 0) return;
  auto* const page = reinterpret_cast<std::uint8_t*>(p.cache.data + slot / p.cache.page_rows * p.cache.pitch);
  const std::int64_t offset = slot % p.cache.page_rows;
  put_in_page<uint4, kValueBytes, kLanes>(page + offset * kValueBytes, staged.bytes, lane);
  put_in_page<std::uint32_t, kScaleBytes, kLanes>(
      page + std::int64_t{p.cache.page_rows} * kValueBytes + offset * kScaleBytes, scales, lane);
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
  const auto blocks = static_cast<unsigned>((rows + kRows - 1) / kRows);
  if (fp4) {
    index_key_kernel<true><<<blocks, kThreads, 0, engine.stream()>>>(p);
  } else {
    index_key_kernel<false><<<blocks, kThreads, 0, engine.stream()>>>(p);
  }
  DSV4_LAUNCHED("index_key_kernel");
}

}  // namespace dsv4::gpu
