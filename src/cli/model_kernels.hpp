/// Stages of an engine computed by models of production kernels (docs/kernel-models.md) instead of IEEE
/// arithmetic: entries of the stage table are wrapped, no stage knows of it. Which stages: kernel_table.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/kernels/kernel_table.hpp"
#include "compare/rule.hpp"
#include "model/engine.hpp"
#include "model/observation.hpp"

namespace dsv4::cli {

/// Throws UsageError for a profile without kernel models, or one with other axes than the profile of that
/// name: kernels have no axes.
void require_kernel_models(const Profile& profile);

/// The engine with the stages that `choose` accepts (empty: all that have a model for this run) computed by
/// models. A stage runs first; what it published and wrote is replaced. Throws UsageError as above, and for
/// an engine without byte-exact caches.
std::unique_ptr<Engine> with_model_kernels(std::unique_ptr<Engine> engine,
                                           std::shared_ptr<const WeightSource> weights,
                                           std::function<bool(const StageModel&)> choose = {});

/// Whether state rows of such a run mean something else than published: SGLang's online C128.
bool keeps_kernel_state(const RunConfig& config);
/// Throws UsageError where they do: they cannot be fed from another engine.
void check_feeding_kernel_models(const RunConfig& config);

/// Ends the engine's name in dumps and reports of such a run.
inline constexpr std::string_view kModelKernelsSuffix = "+kernel-models";
inline bool has_model_kernels(const SourceInfo& info) {
  return info.engine.ends_with(kModelKernelsSuffix);
}

/// What rules have to know where one side is such a run: tensors that no float64 bound covers.
void know_kernel_models(compare::Rules& rules, const RunConfig& config);

/// The rules `hopper-exact` of results that are held against a run of this configuration with kernel models.
compare::Rules hopper_exact_rules(const RunConfig& config);

/// The rule set called `name`; without a name `bits` or `values`. Throws UsageError if hopper-exact is asked
/// for and neither side is such a run.
compare::Rules make_rules(const std::string& name, bool bits, const SourceInfo& reference,
                          const SourceInfo& subject);

}  // namespace dsv4::cli
