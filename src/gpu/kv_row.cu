#include "gpu/check.cuh"
#include "gpu/kv_row.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

/// One thread a byte of page_bytes.
__global__ void pack_kernel(const std::uint8_t* codes, const std::uint16_t* rope, const std::uint8_t* scales,
                            std::uint8_t* bytes, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * layout::kKvRowBytes) return;
  const std::int64_t row = i / layout::kKvRowBytes;
  const int b = static_cast<int>(i % layout::kKvRowBytes);
  if (b < kNopeDim) {
    bytes[i] = codes[row * kNopeDim + b];
  } else if (b < layout::kKvValueBytes) {
    const int half = b - kNopeDim;
    bytes[i] = static_cast<std::uint8_t>(rope[row * kRopeDim + half / 2] >> (8 * (half % 2)));
  } else {
    const int block = b - layout::kKvValueBytes;
    bytes[i] = block < layout::kKvScales ? scales[row * layout::kKvScales + block] : 0;
  }
}

__global__ void rope_part_kernel(const std::uint16_t* kv, std::uint16_t* rope, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * kRopeDim) rope[i] = kv[i / kRopeDim * kHeadDim + kNopeDim + i % kRopeDim];
}

__global__ void write_rows_kernel(const std::byte* bytes, std::int64_t rows, CacheMemory cache,
                                  const std::int32_t* slots) {
  const int row_bytes = cache.value_bytes + cache.scale_bytes;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * row_bytes) return;
  const std::int32_t slot = slots[i / row_bytes];
  if (slot < 0) return;
  const int b = static_cast<int>(i % row_bytes);
  std::byte* page = cache.data + slot / cache.page_rows * cache.pitch;
  const std::int64_t offset = slot % cache.page_rows;
  if (b < cache.value_bytes) {
    page[offset * cache.value_bytes + b] = bytes[i];
  } else {
    page[std::int64_t{cache.page_rows} * cache.value_bytes + offset * cache.scale_bytes + (b - cache.value_bytes)] = bytes[i];
  }
}

unsigned blocks_for(std::int64_t items) { return static_cast<unsigned>((items + 255) / 256); }

}  // namespace

void publish_kv_rows(CudaEngine& engine, int layer, const KvRowTensors& ids, const std::uint16_t* kv,
                     std::int64_t rows, const CacheMemory& cache, const std::int32_t* slots) {
  const DeviceTensor codes = engine.publish(layer, ids.codes, DType::float8_e4m3fn, {rows, kNopeDim});
  const DeviceTensor rope = engine.publish(layer, ids.rope, DType::bfloat16, {rows, kRopeDim});
  const DeviceTensor scales = engine.publish(layer, ids.scales, DType::float8_e8m0fnu, {rows, layout::kKvScales});
  const DeviceTensor bytes = engine.publish(layer, ids.page_bytes, DType::uint8, {rows, layout::kKvRowBytes});
  if (rows == 0) return;
  quantise_e4m3(kv, kHeadDim, rows, kNopeDim, layout::kKvBlock, codes.as<std::uint8_t>(), kNopeDim,
                scales.as<std::uint8_t>(), layout::kKvScales, engine.stream());
  rope_part_kernel<<<blocks_for(rows * kRopeDim), 256, 0, engine.stream()>>>(kv, rope.as<std::uint16_t>(), rows);
  DSV4_LAUNCHED("rope_part_kernel");
  pack_kernel<<<blocks_for(rows * layout::kKvRowBytes), 256, 0, engine.stream()>>>(
      codes.as<std::uint8_t>(), rope.as<std::uint16_t>(), scales.as<std::uint8_t>(), bytes.as<std::uint8_t>(), rows);
  DSV4_LAUNCHED("pack_kernel");
  write_rows(bytes.data, rows, cache, slots, engine.stream());
}

void write_rows(const std::byte* bytes, std::int64_t rows, const CacheMemory& cache, const std::int32_t* slots,
                cudaStream_t stream) {
  if (rows == 0) return;
  const std::int64_t total = rows * (cache.value_bytes + cache.scale_bytes);
  write_rows_kernel<<<blocks_for(total), 256, 0, stream>>>(bytes, rows, cache, slots);
  DSV4_LAUNCHED("write_rows_kernel");
}

}  // namespace dsv4::gpu
