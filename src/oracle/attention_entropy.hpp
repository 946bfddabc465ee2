/// How peaked attention is: the entropy of its softmax, from the published queries and lists and the caches
/// as the step left them. A figure for `--stats`; nothing is judged by it.
#pragma once

#include "compare/statistics.hpp"
#include "model/engine.hpp"
#include "model/observation.hpp"

namespace dsv4::oracle {

/// Adds to the row of each layer's attention.core/out: entropy in nats of p = exp(z - lse) over the keys of
/// the lists, the sink left out (docs/numerics.md 15), of at most kSampledTokens tokens a step, spread over
/// the batch, all heads. Tokens whose keys the step already gave back as poison, and layers whose queries or
/// lists were not selected, are left out. Needs an engine with byte-exact, quantised caches.
void add_attention_entropy(const Engine& engine, const StepObservation& step,
                           std::vector<compare::TensorStatistics>& rows);

inline constexpr std::int64_t kSampledTokens = 8;

}  // namespace dsv4::oracle
