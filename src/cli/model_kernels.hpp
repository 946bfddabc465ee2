/// Stages of an engine computed by models of production kernels (docs/kernel-models.md) instead of IEEE
/// arithmetic: entries of the stage table are wrapped, no stage knows of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "compare/rule.hpp"
#include "model/engine.hpp"
#include "model/observation.hpp"

namespace dsv4::cli {

/// Under the profiles vllm-* and sglang-*: compress.pool and indexer.pool by the engine's pooling kernels,
/// and, with FP8 index rows and 32 or 64 index heads, indexer.score by DeepGEMM. The wrapped stage runs
/// first; its tensor is replaced. Throws UsageError for other profiles, for an engine without byte-exact
/// caches and for online C128 state.
void use_model_kernels(Engine& engine, std::shared_ptr<const WeightSource> weights);

/// Ends the engine's name in dumps and reports of such a run.
inline constexpr std::string_view kModelKernelsSuffix = "+kernel-models";
inline bool has_model_kernels(const SourceInfo& info) {
  return info.engine.ends_with(kModelKernelsSuffix);
}

/// The rule set called `name`; without a name `bits` or `values`. Throws UsageError if hopper-exact is asked
/// for and neither side is such a run.
compare::Rules make_rules(const std::string& name, bool bits, const SourceInfo& reference,
                          const SourceInfo& subject);

}  // namespace dsv4::cli
