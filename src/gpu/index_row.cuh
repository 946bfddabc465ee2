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

/// Packs published codes and scales of keys into page bytes [rows, 132 or 68].
void pack_index_rows(CudaEngine& engine, int layer, const IndexRowTensors& ids, const DeviceTensor& bytes);

}  // namespace dsv4::gpu
