#include "cli/model_kernels.hpp"

#include <algorithm>
#include <map>

#include "cli/kernels/kernel_call.hpp"
#include "model/error.hpp"

namespace dsv4::cli {
namespace {

std::string profiles_with_models() {
  std::string names;
  for (const std::string_view name : profile_names()) {
    const bool known = std::ranges::any_of(
        stage_models(), [&](const StageModel& model) { return name.starts_with(model.profiles); });
    if (known) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace

void require_kernel_models(const Profile& profile) {
  const std::string base = profile.name.substr(0, profile.name.find('+'));
  const bool known = std::ranges::any_of(
      stage_models(), [&](const StageModel& model) { return base.starts_with(model.profiles); });
  if (!known) {
    throw UsageError("--model-kernels: profile '" + profile.name +
                     "' has no kernel models (known: " + profiles_with_models() + ")");
  }
  const Profile own = profile_named(base);
  for (const AxisInfo& axis : axes()) {
    if (profile.value(axis.axis) == own.value(axis.axis)) continue;
    throw UsageError("--model-kernels: " + std::string(axis.name) + " = " +
                     std::string(profile.value(axis.axis)) + ", but the kernels of " + base + " compute " +
                     std::string(own.value(axis.axis)));
  }
}

std::unique_ptr<Engine> with_model_kernels(std::unique_ptr<Engine> engine,
                                           std::shared_ptr<const WeightSource> weights,
                                           std::function<bool(const StageModel&)> choose) {
  require_kernel_models(engine->config().profile);
  if (!engine->info().byte_state) {
    throw UsageError("--model-kernels: engine '" + engine->info().name + "' has no byte-exact caches");
  }
  auto changed = std::make_unique<oracle::EditedEngine>(std::move(engine), std::move(weights));
  const auto memory = std::make_shared<KernelMemory>();
  const auto chosen = [&](const StageModel& model) {
    if (!choose || choose(model)) return true;
    return model.together && std::ranges::any_of(stage_models(), [&](const StageModel& other) {
             return other.together && other.profiles == model.profiles && choose(other);
           });
  };
  for (const StageModel& model : stage_models()) {
    if (!changed->config().profile.name.starts_with(model.profiles) || !chosen(model)) continue;
    for (const TensorId id : model.reads) changed->needs(id);
    changed->after(model.stage, [owner = changed.get(), memory, &model](const StageCall& call) {
      if (model.applies(owner->config(), owner->kind(call.layer))) model.run({*owner, *memory, call});
    });
  }
  return changed;
}

bool keeps_kernel_state(const RunConfig& config) {
  return std::ranges::any_of(config.layers, [&](LayerKind kind) {
    return std::ranges::any_of(stage_models_of(config, kind), [](const StageModel* model) {
      return model->stage == Stage::compress_state || model->stage == Stage::indexer_state;
    });
  });
}

void check_feeding_kernel_models(const RunConfig& config) {
  if (!keeps_kernel_state(config)) return;
  throw UsageError(
      "--feed reference: state of online C128 under --model-kernels holds the kernel's mean instead of the "
      "weighted sum, so no other engine's state can be fed");
}

void know_kernel_models(compare::Rules& rules, const RunConfig& config) {
  for (const LayerKind kind : config.layers) {
    for (const StageModel* const model : stage_models_of(config, kind)) {
      for (const TensorId id : model->beyond) rules.judge_without_bound(id);
    }
  }
}

compare::Rules hopper_exact_rules(const RunConfig& config) {
  // A tensor counts if every layer that has its stage has a model of it.
  std::map<TensorId, std::optional<TensorId>> exact;
  std::vector<Stage> without;
  for (const LayerKind kind : config.layers) {
    const std::vector<const StageModel*> models = stage_models_of(config, kind);
    for (const Stage stage : execution_order(kind, false)) {
      if (std::ranges::find(models, stage, &StageModel::stage) == models.end()) without.push_back(stage);
    }
    for (const StageModel* const model : models) {
      for (const ExactTensor& tensor : model->exact) exact[tensor.id] = tensor.given;
    }
  }
  std::erase_if(exact, [&](const auto& tensor) {
    return std::ranges::find(without, info(tensor.first).stage) != without.end();
  });
  std::vector<TensorId> modelled;
  for (const auto& [id, given] : exact) modelled.push_back(id);
  compare::Rules rules(compare::RuleSet::hopper_exact, modelled);
  for (const auto& [id, given] : exact) {
    if (given) rules.require_given(id, *given);
  }
  return rules;
}

compare::Rules make_rules(const std::string& name, bool bits, const SourceInfo& reference,
                          const SourceInfo& subject) {
  const compare::RuleSet set = !name.empty() ? compare::rule_set_named(name)
                               : bits        ? compare::RuleSet::bits
                                             : compare::RuleSet::values;
  const bool modelled = has_model_kernels(reference) || has_model_kernels(subject);
  if (set == compare::RuleSet::hopper_exact && !modelled)
    throw UsageError("--rules hopper-exact: neither side is a run with --model-kernels");
  const RunConfig& config = (has_model_kernels(reference) ? reference : subject).config;
  compare::Rules rules =
      set == compare::RuleSet::hopper_exact ? hopper_exact_rules(config) : compare::Rules(set);
  if (modelled) know_kernel_models(rules, config);
  return rules;
}

}  // namespace dsv4::cli
