/// The query latent as FP8 activations: wq_b and indexer.wq_b read the same codes (docs/numerics.md 11).
#pragma once

#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

/// q_latent quantised in blocks of 128, in scratch memory.
WideOperand quantised_latent(CudaEngine& engine, int layer);

}  // namespace dsv4::gpu
