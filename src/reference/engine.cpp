#include "reference/engine.hpp"

#include <fmt/format.h>

#include "model/error.hpp"
#include "reference/arithmetic_support.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

void run(StageContext& context, Stage stage) {
  switch (stage) {
    case Stage::layer_input:
      return layer_input(context);
    case Stage::q_down:
      return q_down(context);
    case Stage::q_up:
      return q_up(context);
    case Stage::kv_window:
      return kv_window(context);
    case Stage::compress_project:
    case Stage::indexer_project:
      return compress_project(context, stage);
    case Stage::compress_state:
    case Stage::indexer_state:
      return compress_state(context, stage);
    case Stage::compress_pool:
    case Stage::indexer_pool:
      return compress_pool(context, stage);
    case Stage::compress_finish:
    case Stage::indexer_finish:
      return compress_finish(context, stage);
    case Stage::indexer_query:
      return indexer_query(context);
    case Stage::indexer_score:
      return indexer_score(context);
    case Stage::indexer_select:
      return indexer_select(context);
    case Stage::attention_lists:
      return attention_lists(context);
    case Stage::attention_core:
      return attention_core(context);
    case Stage::output_project:
      return output_project(context);
  }
  throw InternalError("unknown stage");
}

/// The rows of each request are contiguous and agree with its positions: every stage relies on it.
void check_rows(const StepPlan& plan) {
  std::size_t real = 0;
  for (const RequestStep& request : plan.requests) {
    bool good = request.row_count == request.end - request.begin && request.first_row >= 0 &&
                request.first_row + request.row_count <= std::ssize(plan.rows) && request.tables != nullptr;
    for (std::int32_t i = 0; good && i < request.row_count; ++i) {
      const Row& row = plan.rows[static_cast<std::size_t>(request.first_row + i)];
      good = row.request == request.request && row.position == request.begin + i;
    }
    if (!good) {
      throw InternalError(fmt::format("step {}: request {} at positions {}..{} does not match its batch rows",
                                      plan.index, request.request, request.begin, request.end));
    }
    real += static_cast<std::size_t>(request.row_count);
  }
  std::size_t rows = 0;
  for (const Row& row : plan.rows) rows += row.request >= 0 ? 1 : 0;
  if (rows != real) throw InternalError(fmt::format("step {}: batch rows of no request", plan.index));
}

}  // namespace

ReferenceEngine::ReferenceEngine(RunConfig config, std::shared_ptr<const WeightSource> weights,
                                 std::shared_ptr<const HiddenSource> hidden)
    : Engine(std::move(config)),
      weights_(std::move(weights)),
      hidden_(std::move(hidden)),
      inputs_(std::make_unique<InputStore>()) {
  check(config_.geometry);
  check_arithmetic(config_);
  for (int layer = 0; layer < std::ssize(config_.layers); ++layer) {
    layers_.push_back(std::make_unique<LayerState>(config_, layer));
  }
  steps_.resize(layers_.size());
  for (LayerStep& step : steps_) step.tensors.resize(tensor_count());
  for (std::size_t stage = 0; stage < kStageCount; ++stage) {
    stages_[stage] = [this](const StageCall& call) {
      StageContext stage_context = context(call.plan, call.layer);
      run(stage_context, call.stage);
    };
  }
}

ReferenceEngine::~ReferenceEngine() = default;

EngineInfo ReferenceEngine::info() const {
  EngineInfo info;
  info.name = "reference";
  info.device = "cpu";
  return info;
}

LayerState& ReferenceEngine::layer_state(int layer) {
  return *layers_.at(static_cast<std::size_t>(layer));
}
const LayerState& ReferenceEngine::layer_state(int layer) const {
  return *layers_.at(static_cast<std::size_t>(layer));
}

StageContext ReferenceEngine::context(const StepPlan& plan, int layer) {
  LayerState& state = layer_state(layer);
  if (!state.weights) state.weights = weights_->layer(layer);
  return {config_, plan, layer, state, steps_, wanted_, *hidden_, *inputs_};
}

void ReferenceEngine::begin_step(const StepPlan& plan) {
  if (plan.kind == StepKind::graph) throw SubjectError("engine reference has no graphs");
  check_rows(plan);
  plan_ = &plan;
  for (LayerStep& step : steps_) {
    for (auto& tensor : step.tensors) tensor.reset();
    step.writes.clear();
  }
  for (const PageCopy& copy : plan.copies) {
    for (const auto& layer : layers_) layer->caches.copy(copy);
  }
}

void ReferenceEngine::commit_online(const StepPlan& plan) {
  for (int layer = 0; layer < std::ssize(layers_); ++layer) {
    LayerState& state = layer_state(layer);
    if (!has_compressor(state.kind) || !online_state(config_.cache, state.kind)) continue;
    RowStore& store = state.caches.at(Cache::state);
    std::vector<std::byte> row(static_cast<std::size_t>(store.shape().row_bytes()));
    for (const RequestStep& request : plan.requests) {
      const std::int32_t accepted = request.committed - request.begin;
      if (!request.verify || accepted == 0) continue;
      const Slots slots(config_, layer, request);
      store.read(slots.bank(accepted), row);  // bank 1 + i holds the state after row i
      store.write(slots.bank(0), row);
    }
  }
}

void ReferenceEngine::keep_inputs(const StepPlan& plan) {
  if (!config_.chain || plan.kind != StepKind::compute) return;
  const auto dim = static_cast<std::size_t>(config_.geometry.dim);
  for (int layer = 1; layer < std::ssize(layers_); ++layer) {
    const Tensor* hidden = tensor(layer, TensorId::hidden);
    if (hidden == nullptr) continue;
    for (std::size_t token = 0; token < plan.rows.size(); ++token) {
      if (plan.rows[token].request < 0) continue;
      inputs_->put(layer, plan.rows[token].content, hidden->as<std::uint16_t>().subspan(token * dim, dim));
    }
  }
}

void ReferenceEngine::end_step(const StepPlan& plan) {
  commit_online(plan);
  keep_inputs(plan);
  for (const auto& layer : layers_) {
    if (config_.cache.poison_freed) {
      for (const PageRef& page : plan.released) layer->caches.fill_page(page, layout::kPoison);
      for (const std::int32_t base : plan.released_bases) layer->caches.fill_base(base, layout::kPoison);
    }
    if (!plan.poison) continue;
    for (const PageRef& page : plan.poison->pages) layer->caches.fill_page(page, plan.poison->value);
    for (const std::int32_t base : plan.poison->state_bases)
      layer->caches.fill_base(base, plan.poison->value);
  }
}

const Tensor* ReferenceEngine::tensor(int layer, TensorId id) const {
  const auto& tensor = steps_.at(static_cast<std::size_t>(layer)).tensors[static_cast<std::size_t>(id)];
  return tensor ? &*tensor : nullptr;
}

void ReferenceEngine::set_tensor(int layer, TensorId id, Tensor value) {
  steps_.at(static_cast<std::size_t>(layer)).tensors[static_cast<std::size_t>(id)] = std::move(value);
}

std::span<const Write> ReferenceEngine::writes(int layer) const {
  return steps_.at(static_cast<std::size_t>(layer)).writes;
}

void ReferenceEngine::apply_writes(int layer, std::span<const Write> rows) {
  for (const Write& row : rows) layer_state(layer).caches.at(row.cache).write(row.slot, row.bytes);
}

std::vector<HeldTable> ReferenceEngine::held_tables() const {
  std::vector<HeldTable> tables;
  for (const RequestStep& request : plan_->requests) {
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      const std::vector<std::int32_t>& pages = (*request.tables)[pool];
      if (!pages.empty()) tables.push_back({request.request, static_cast<Pool>(pool), 0, pages});
    }
  }
  return tables;
}

std::vector<std::byte> ReferenceEngine::live_rows(int layer, Cache cache,
                                                  std::span<const LiveRequest> live) const {
  std::vector<std::byte> rows;
  for (const LiveRequest& request : live) layer_state(layer).caches.append_live(cache, request, rows);
  return rows;
}

std::vector<std::byte> ReferenceEngine::read_row(int layer, Cache cache, std::int64_t row) const {
  return layer_state(layer).caches.at(cache).read_unit(row);
}

void ReferenceEngine::write_row(int layer, Cache cache, std::int64_t row, std::span<const std::byte> bytes) {
  layer_state(layer).caches.at(cache).write_unit(row, bytes);
}

std::vector<StoredInput> ReferenceEngine::stored_inputs(int layer) const {
  return inputs_->all(layer);
}

void ReferenceEngine::store_inputs(int layer, std::span<const StoredInput> inputs) {
  for (const StoredInput& input : inputs) inputs_->put(layer, input.content, input.row);
}

std::unique_ptr<Engine> make_reference_engine(const RunConfig& config,
                                              std::shared_ptr<const WeightSource> weights,
                                              std::shared_ptr<const HiddenSource> hidden) {
  return std::make_unique<ReferenceEngine>(config, std::move(weights), std::move(hidden));
}

}  // namespace dsv4::reference
