/// The 584-byte KV row (docs/numerics.md 11): 448 e4m3 codes, 64 bf16, 7 scale bytes and a spare byte 0.
/// Window and compressed pages hold the same row.
#pragma once

#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

/// Tensors made from bf16 rows [rows, 512].
struct KvRowTensors {
  TensorId codes, rope, scales, page_bytes;
};

/// Quantises `kv` [rows, 512], publishes codes, rope, scales and page_bytes, and writes every row with a slot
/// >= 0 into the pages of `cache`. `slots` is on the device.
void publish_kv_rows(CudaEngine& engine, int layer, const KvRowTensors& ids, const std::uint16_t* kv,
                     std::int64_t rows, const CacheMemory& cache, const std::int32_t* slots);

/// Writes rows of value bytes then scale bytes [rows, value_bytes + scale_bytes] to their slots; slots below 0
/// are left out.
void write_rows(const std::byte* bytes, std::int64_t rows, const CacheMemory& cache, const std::int32_t* slots,
                cudaStream_t stream);

}  // namespace dsv4::gpu
