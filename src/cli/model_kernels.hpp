/// Stages of an engine computed by models of production kernels (docs/kernel-models.md) instead of IEEE
/// arithmetic: entries of the stage table are wrapped, no stage knows of it.
#pragma once

#include <memory>

#include "model/engine.hpp"

namespace dsv4::cli {

/// Under the profiles vllm-* and sglang-*: compress.pool and indexer.pool by the engine's pooling kernels,
/// and, with FP8 index rows and 32 or 64 index heads, indexer.score by DeepGEMM. The wrapped stage runs
/// first; its tensor is replaced. Throws UsageError for other profiles, for an engine without byte-exact
/// caches and for online C128 state.
void use_model_kernels(Engine& engine, std::shared_ptr<const WeightSource> weights);

}  // namespace dsv4::cli
