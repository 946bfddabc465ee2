#include "wide/engine.hpp"

#include <algorithm>

#include "model/error.hpp"
#include "model/layout.hpp"
#include "wide/formats.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// Refuses axis values that this engine has no formula for.
void check_axes(const Profile& profile) {
  const Profile canonical = profile_named("canonical");
  for (const AxisInfo& axis : axes()) {
    const std::string_view value = profile.value(axis.axis);
    if (value == canonical.value(axis.axis)) continue;
    const bool unknown =
        axis.axis == Axis::arithmetic || (axis.axis == Axis::list_order && value == "compressed_first");
    if (unknown) {
      throw UsageError("the wide engine does not compute axis " + std::string(axis.name) + ": " +
                       std::string(value));
    }
  }
  const auto needs = [&](bool fails, const char* message) {
    if (fails) throw UsageError(std::string("the wide engine does not compute ") + message);
  };
  needs(profile.get<OutRotation>() == OutRotation::f32 && profile.get<WoA>() == WoA::bf16,
        "axis out_rotation: f32 beside wo_a: bf16");
  needs(profile.get<QRopeInput>() == QRopeInput::f32 && profile.get<HeadNorm>() != HeadNorm::f32,
        "axis q_rope_input: f32 beside a head_norm that rounds");
  needs(profile.get<SinkInMax>() == SinkInMax::yes && profile.get<Softmax>() == Softmax::online64_bf16_p,
        "axis sink_in_max: yes beside softmax: online64_bf16_p");
}

}  // namespace

WideEngine::WideEngine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                       std::shared_ptr<const HiddenSource> hidden)
    : Engine(config), weights_(std::move(weights)), hidden_(std::move(hidden)) {
  check_axes(config_.profile);
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    layers_.push_back(std::make_unique<Layer>(config_, static_cast<int>(i)));
  }
  for (StageFunction& function : stages_) {
    function = [this](const StageCall& call) {
      run(call);
      at(call.layer).drop_given(call.stage);
    };
  }
}

EngineInfo WideEngine::info() const {
  return {"wide", false, !config_.profile.exact, false, "cpu"};
}

void WideEngine::want(const TensorSet& wanted) {
  Engine::want(wanted);
  for (const auto& layer : layers_) layer->want(wanted);
}

void WideEngine::begin_step(const StepPlan& plan) {
  if (plan.kind == StepKind::graph) {
    throw SubjectError("step " + std::to_string(plan.index) + " (" + plan.source +
                       "): the wide engine has no graphs to capture or replay");
  }
  plan_ = &plan;
  for (const auto& layer : layers_) {
    layer->begin_step(plan);
    for (const PageCopy& copy : plan.copies) layer->caches.copy(copy);
  }
}

void WideEngine::run(const StageCall& call) {
  Layer& layer = at(call.layer);
  if (!layer.weights) layer.weights = weights_->layer(call.layer);
  const StepPlan& plan = call.plan;
  switch (call.stage) {
    case Stage::layer_input:
      return layer_input(layer, plan, *hidden_,
                         config_.chain && call.layer > 0 ? &at(call.layer - 1) : nullptr, inputs_);
    case Stage::q_down:
      return q_down(layer);
    case Stage::q_up:
      return q_up(layer);
    case Stage::kv_window:
      return kv_window(layer, plan);
    case Stage::compress_project:
    case Stage::indexer_project:
      return compress_project(layer, call.stage == Stage::indexer_project);
    case Stage::compress_state:
    case Stage::indexer_state:
      return compress_state(layer, plan, call.stage == Stage::indexer_state);
    case Stage::compress_pool:
    case Stage::indexer_pool:
      return compress_pool(layer, plan, call.stage == Stage::indexer_pool);
    case Stage::compress_finish:
    case Stage::indexer_finish:
      return compress_finish(layer, plan, call.stage == Stage::indexer_finish);
    case Stage::indexer_query:
      return indexer_query(layer);
    case Stage::indexer_score:
      return indexer_score(layer, plan);
    case Stage::indexer_select:
      return indexer_select(layer);
    case Stage::attention_lists:
      return attention_lists(layer, plan);
    case Stage::attention_core:
      return attention_core(layer);
    case Stage::output_project:
      return output_project(layer);
  }
}

void WideEngine::end_step(const StepPlan& plan) {
  for (const auto& layer : layers_) {
    layer->weights.reset();
    Caches& caches = layer->caches;
    if (config_.chain && layer->index > 0 && plan.kind == StepKind::compute) layer->keep_inputs(inputs_);
    if (caches.online() && plan.kind == StepKind::compute) {
      for (const RequestStep& step : plan.requests) {
        const std::int32_t accepted = step.committed - step.begin;
        if (step.verify && accepted > 0) layer->commit_online(step, accepted);
      }
    }
    if (config_.cache.poison_freed) {
      for (const PageRef& page : plan.released) caches.fill(page, layout::kPoison);
      for (const std::int32_t base : plan.released_bases) caches.fill_base(base, layout::kPoison);
    }
    if (plan.poison) {
      for (const PageRef& page : plan.poison->pages) caches.fill(page, plan.poison->value);
      for (const std::int32_t base : plan.poison->state_bases) caches.fill_base(base, plan.poison->value);
    }
  }
}

void WideEngine::set_tensor(int layer, TensorId id, Tensor value) {
  at(layer).set_tensor(id, std::move(value));
}

void WideEngine::apply_writes(int layer, std::span<const Write> rows) {
  for (const Write& row : rows) at(layer).caches.put(row.cache, row.slot, row.bytes);
}

std::vector<HeldTable> WideEngine::held_tables() const {
  std::vector<HeldTable> held;
  for (const RequestStep& request : plan_->requests) {
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      held.push_back({request.request, static_cast<Pool>(pool), 0, (*request.tables)[pool]});
    }
  }
  return held;
}

std::vector<std::byte> WideEngine::live_rows(int layer, Cache cache,
                                             std::span<const LiveRequest> live) const {
  std::vector<std::byte> bytes;
  for (const LiveRequest& request : live) at(layer).caches.append_live(cache, request, bytes);
  return bytes;
}

std::vector<std::byte> WideEngine::read_row(int layer, Cache cache, std::int64_t row) const {
  return at(layer).caches.memory(cache).page(row);
}

void WideEngine::write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) {
  at(layer).caches.memory(cache).set_page(row, bytes);
}

std::vector<StoredInput> WideEngine::stored_inputs(int layer) const {
  std::vector<StoredInput> stored;
  const auto* const rows = inputs_.rows(layer);
  if (rows == nullptr) return stored;
  for (const auto& [content, row] : *rows) {
    StoredInput input{content, std::vector<std::uint16_t>(row.size())};
    std::transform(row.begin(), row.end(), input.row.begin(), bf16_code);
    stored.push_back(std::move(input));
  }
  return stored;
}

void WideEngine::store_inputs(int layer, std::span<const StoredInput> inputs) {
  for (const StoredInput& input : inputs) inputs_.put(layer, input.content, bf16_values(input.row));
}

std::unique_ptr<Engine> make_wide_engine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                                         std::shared_ptr<const HiddenSource> hidden) {
  return std::make_unique<WideEngine>(config, std::move(weights), std::move(hidden));
}

}  // namespace dsv4::wide
