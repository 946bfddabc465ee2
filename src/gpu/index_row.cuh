/// Rows of the 128-wide index vectors: FP8 with one f32 scale, or FP4 with four ue8m0 scales (docs/numerics.md
/// 12.7, 13). Keys and queries are quantised alike.
#pragma once

#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

struct IndexRowTensors {
  TensorId codes, scales;
};

/// Quantises vectors of 128 bf16 values and publishes codes [shape..., 128] and scales [shape..., blocks].
void publish_index_rows(CudaEngine& engine, int layer, const IndexRowTensors& ids, const std::uint16_t* vectors,
                        std::vector<std::int64_t> shape);

/// What a step's index keys are made of, on the device.
struct IndexKeySource {
  const float* pooled;           ///< [rows, 128]
  const std::uint16_t* norm;     ///< [128] bf16
  const std::int32_t* position;  ///< [rows], of RoPE
  const std::int32_t* slot;      ///< [rows], below 0: not inserted
};

/// The finish of index keys in one kernel: rounding to bf16, norm, RoPE, Hadamard where the profile has it,
/// quantisation, the published tensors (indexer.finish), and the insert into a page of `cache`.
void publish_index_keys(CudaEngine& engine, int layer, const IndexKeySource& source, std::int64_t rows,
                        const CacheMemory& cache);

}  // namespace dsv4::gpu
