/// The 584-byte KV row (docs/numerics.md 11): 448 e4m3 codes, 64 bf16, 7 scale bytes and a spare byte 0.
/// Window and compressed pages hold the same row.
#pragma once

#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

/// What the rows are made of, on the device: bf16 values, or f32 values that are rounded to bf16 first.
struct KvRowSource {
  const std::uint16_t* bf16;      ///< [rows, 512], or null
  const float* f32;               ///< [rows, 512], or null
  const std::uint16_t* norm;      ///< [512] bf16
  const std::int32_t* position;   ///< [rows], of RoPE
  const std::int32_t* slot;       ///< [rows], below 0: not inserted
};

/// The tensors that are published.
struct KvRowTensors {
  std::optional<TensorId> normed;  ///< before RoPE
  TensorId row;                    ///< after RoPE
  TensorId codes, rope, scales, page_bytes;
};

/// Norm, RoPE and FP8 quantisation of every row, its tensors, and its insert into a page of `cache`, in one kernel.
void publish_kv_rows(CudaEngine& engine, int layer, const KvRowTensors& ids, const KvRowSource& source,
                     std::int64_t rows, const CacheMemory& cache);

}  // namespace dsv4::gpu
