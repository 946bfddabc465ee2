#include "oracle/runner.hpp"

#include <algorithm>
#include <cstring>

#include "model/digest.hpp"
#include "oracle/fill.hpp"
#include "oracle/lifetime/table_state.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

Tensor int32_tensor(std::vector<std::int64_t> shape, std::int32_t fill) {
  Tensor tensor(DType::int32, std::move(shape));
  std::ranges::fill(tensor.as<std::int32_t>(), fill);
  return tensor;
}

/// Columns [begin, begin + count) of rows of f32 state bytes as a [rows, count] tensor.
Tensor state_part(const std::vector<std::vector<std::byte>>& rows, std::int64_t row_bytes,
                  std::int64_t rows_a_unit, int part, int channels) {
  const std::int64_t total = static_cast<std::int64_t>(rows.size()) * rows_a_unit;
  Tensor tensor(DType::float32, {total, channels});
  const std::size_t bytes = static_cast<std::size_t>(channels) * 4;
  for (std::int64_t row = 0; row < total; ++row) {
    const std::vector<std::byte>& unit = rows[static_cast<std::size_t>(row / rows_a_unit)];
    const std::size_t at =
        static_cast<std::size_t>(row % rows_a_unit * row_bytes) + static_cast<std::size_t>(part) * bytes;
    require(at + bytes <= unit.size(), "a state row is shorter than its channels");
    std::memcpy(tensor.bytes().data() + static_cast<std::size_t>(row) * bytes, unit.data() + at, bytes);
  }
  return tensor;
}

}  // namespace

void run_graphs_as_steps(RunPlan& plan) {
  for (StepPlan& step : plan.steps) {
    if (step.kind == StepKind::graph) step.kind = StepKind::compute;
  }
}

BatchTables batch_tables(const RunConfig& config, const StepPlan& plan) {
  const auto tokens = static_cast<std::int64_t>(plan.rows.size());
  BatchTables batch{int32_tensor({tokens}, -1), int32_tensor({tokens}, -1), int32_tensor({tokens}, -1),
                    int32_tensor({tokens}, -1),
                    Tensor(DType::int32, {static_cast<std::int64_t>(plan.prefix.size()), 3})};
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    batch.request.as<std::int32_t>()[row] = plan.rows[row].request;
    batch.position.as<std::int32_t>()[row] = plan.rows[row].position;
  }
  const CacheShape window = cache_shape(config, 0, Cache::window);
  for (const RequestStep& request : plan.requests) {
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const std::int64_t slot = slot_of(window, *request.tables, request.state_base, request.begin + i);
      const auto row = static_cast<std::size_t>(request.first_row + i);
      batch.slot.as<std::int32_t>()[row] = static_cast<std::int32_t>(slot);
      batch.page.as<std::int32_t>()[row] = slot < 0 ? -1 : static_cast<std::int32_t>(slot / window.page_rows);
    }
  }
  auto prefix = batch.prefix.as<std::int32_t>();
  for (std::size_t i = 0; i < plan.prefix.size(); ++i) {
    prefix[3 * i] = plan.prefix[i].request;
    prefix[3 * i + 1] = plan.prefix[i].source;
    prefix[3 * i + 2] = plan.prefix[i].tokens;
  }
  return batch;
}

std::string live_state_digest(Cache cache, std::vector<std::byte> rows) {
  if (cache == Cache::state || cache == Cache::index_state) {
    for (std::size_t at = 0; at + 4 <= rows.size(); at += 4) {
      std::uint32_t bits;
      std::memcpy(&bits, rows.data() + at, 4);
      if ((bits & 0x7FFFFFFFU) <= 0x7F800000U) continue;
      bits = 0x7FC00000U;
      std::memcpy(rows.data() + at, &bits, 4);
    }
  }
  return digest(rows);
}

std::map<std::string, Tensor> cache_snapshots(const Engine& engine, int layer) {
  std::map<std::string, Tensor> snapshots;
  if (!engine.info().byte_state) return snapshots;
  const RunConfig& config = engine.config();
  for (std::size_t c = 0; c < kCacheCount; ++c) {
    const auto cache = static_cast<Cache>(c);
    if (!has_cache(config.layers[static_cast<std::size_t>(layer)], cache)) continue;
    const CacheShape shape = cache_shape(config, layer, cache);
    const std::int64_t units = physical_rows(config, shape);
    std::vector<std::vector<std::byte>> rows;
    rows.reserve(static_cast<std::size_t>(units));
    for (std::int64_t unit = 0; unit < units; ++unit) rows.push_back(engine.read_row(layer, cache, unit));
    if (shape.channels > 0) {
      const std::string prefix = cache == Cache::state ? "compress_state_" : "indexer_state_";
      const std::vector<std::string> parts = shape.online ? std::vector<std::string>{"max", "sum", "kv"}
                                                          : std::vector<std::string>{"kv", "score"};
      for (std::size_t part = 0; part < parts.size(); ++part) {
        snapshots.emplace(prefix + parts[part], state_part(rows, shape.row_bytes(), shape.page_rows,
                                                           static_cast<int>(part), shape.channels));
      }
      continue;
    }
    const std::int64_t pitch = rows.empty() ? 0 : static_cast<std::int64_t>(rows.front().size());
    Tensor pages(DType::uint8, {units, pitch});
    for (std::size_t unit = 0; unit < rows.size(); ++unit) {
      require(static_cast<std::int64_t>(rows[unit].size()) == pitch, "pages of one cache differ in size");
      std::memcpy(pages.bytes().data() + unit * rows[unit].size(), rows[unit].data(), rows[unit].size());
    }
    const char* const name = cache == Cache::window    ? "swa_pages"
                             : cache == Cache::entries ? "compressed_pages"
                                                       : "indexer_pages";
    snapshots.emplace(name, std::move(pages));
  }
  return snapshots;
}

std::string marked_event(const StepPlan& plan) {
  if (plan.kind != StepKind::fill || plan.event.size() < 2 || plan.event.back() != '}' ||
      plan.event.find("\"synthetic\"") != std::string::npos) {
    return plan.event;
  }
  return plan.event.substr(0, plan.event.size() - 1) + ",\"synthetic\":true}";
}

Runner::Runner(Engine& engine, Selection selection)
    : engine_(engine), selection_(selection), ledger_(engine.config()) {}

Runner::~Runner() = default;

void Runner::check_writes() {
  require(engine_.info().byte_state,
          "the write set of an engine without byte-exact caches cannot be checked");
  checker_ = std::make_unique<compare::WriteSetChecker>(engine_.config());
}

void Runner::check_lifetimes() {
  lifetimes_ = std::make_unique<LifetimeChecker>(engine_.config(), ledger_);
}

void Runner::skip(const StepPlan& plan) {
  ledger_.begin(plan);
  if (lifetimes_) {
    lifetimes_->begin(plan);
    lifetimes_->assume_right(plan);
  }
  ledger_.end(plan);
  if (lifetimes_) lifetimes_->end(plan);
}

void Runner::check_layer(const StepPlan& plan, int layer, std::span<const Write> writes) {
  if (!lifetimes_ || layers_checked_[static_cast<std::size_t>(layer)]) return;
  layers_checked_[static_cast<std::size_t>(layer)] = true;
  lifetimes_->layer(engine_, plan, layer, writes);
}

void Runner::replace_rows(int layer, std::span<const Write> rows) {
  engine_.apply_writes(layer, rows);
  if (checker_) checker_->replaced(layer, rows);
}

void Runner::gather_stage(int layer, Stage stage, LayerObservation& observation) const {
  for (const TensorInfo& tensor : tensor_catalogue()) {
    if (tensor.stage != stage || !selection_.has_tensor(tensor.id)) continue;
    if (const Tensor* published = engine_.tensor(layer, tensor.id))
      observation.tensors[tensor.id] = *published;
    if (const Tensor* values = engine_.unrounded(layer, tensor.id))
      observation.unrounded[tensor.id] = *values;
    if (const Tensor* bounds = engine_.bound(layer, tensor.id)) observation.bounds[tensor.id] = *bounds;
  }
}

void Runner::gather_state(const StepPlan& plan, int layer, LayerObservation& observation) const {
  if (selection_.state_digests && engine_.info().byte_state) {
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(engine_.config().layers[static_cast<std::size_t>(layer)], cache)) continue;
      observation.state_digests[cache] = live_state_digest(cache, engine_.live_rows(layer, cache, plan.live));
    }
  }
  if (selection_.snapshots) observation.state_tensors = cache_snapshots(engine_, layer);
}

StepObservation Runner::run(const StepPlan& plan, const StageHooks& hooks) {
  const RunConfig& config = engine_.config();
  if (plan.kind == StepKind::graph && !engine_.info().graphs) {
    throw SubjectError(plan.source + ": engine '" + engine_.info().name + "' has no graphs: it cannot run " +
                       plan.event);
  }
  StepObservation observation;
  observation.step = plan.index;
  observation.event = marked_event(plan);
  observation.batch = batch_tables(config, plan);
  observation.layers.resize(config.layers.size());
  broken_off_.reset();
  write_findings_.clear();
  try {
    walk(plan, hooks, observation);
  } catch (const Error&) {
    gather_broken_off(plan, observation);
    broken_off_ = std::move(observation);
    if (lifetimes_) write_findings_ = findings_until_now(plan);
    throw;
  }
  return observation;
}

void Runner::gather_broken_off(const StepPlan& plan, StepObservation& observation) const {
  if (!gather_late_ || !selection_.has_step(plan.index)) return;
  try {
    for (int layer = 0; layer < static_cast<int>(observation.layers.size()); ++layer) {
      for (std::size_t stage = 0; stage < kStageCount; ++stage) {
        gather_stage(layer, static_cast<Stage>(stage), observation.layers[static_cast<std::size_t>(layer)]);
      }
    }
  } catch (const Error&) {
    // A device that is lost gives nothing more; what came before it stays.
  }
}

std::vector<compare::Finding> Runner::findings_until_now(const StepPlan& plan) {
  try {
    for (int layer = 0; layer < static_cast<int>(layers_checked_.size()); ++layer)
      check_layer(plan, layer, engine_.writes(layer));
  } catch (const Error&) {
    // A device that is lost says nothing more.
  }
  return lifetimes_->broken_off();
}

void Runner::walk(const StepPlan& plan, const StageHooks& hooks, StepObservation& observation) {
  const RunConfig& config = engine_.config();
  const bool observed = selection_.has_step(plan.index);
  engine_.want(observed ? selection_.tensors : TensorSet{});
  {
    const Timed timed(times_.checks);
    if (checker_) checker_->before(engine_);
    ledger_.begin(plan);
    if (lifetimes_) lifetimes_->begin(plan);
  }
  layers_checked_.clear();
  {
    const Timed timed(times_.stages);
    engine_.begin_step(plan);
  }
  layers_checked_.assign(config.layers.size(), false);
  if (plan.kind == StepKind::fill) apply_fill(engine_, plan);
  const bool at_once = !gather_late_ || hooks.before || hooks.after;
  const auto stages = [&](int layer) {
    return plan.rows.empty() ? std::span<const Stage>{}
                             : execution_order(config.layers[static_cast<std::size_t>(layer)],
                                               plan.kind == StepKind::restore);
  };
  const int layers = static_cast<int>(config.layers.size());
  for (int layer = 0; layer < layers; ++layer) {
    for (const Stage stage : stages(layer)) {
      if (hooks.before) hooks.before(layer, stage);
      {
        const Timed timed(times_.stages);
        engine_.run_stage(plan, layer, stage);
      }
      if (observed && at_once) {
        const Timed timed(times_.tensors);
        gather_stage(layer, stage, observation.layers[static_cast<std::size_t>(layer)]);
      }
      // Hooks may put other lists in place.
      if (hooks.after && stage == Stage::attention_lists) check_layer(plan, layer, engine_.writes(layer));
      if (hooks.after) hooks.after(layer, stage);
    }
  }
  for (int layer = 0; layer < layers; ++layer) {
    LayerObservation& gathered = observation.layers[static_cast<std::size_t>(layer)];
    {
      const Timed timed(times_.tensors);
      if (observed && !at_once) {
        for (const Stage stage : stages(layer)) gather_stage(layer, stage, gathered);
      }
      const auto writes = engine_.writes(layer);
      gathered.writes.assign(writes.begin(), writes.end());
    }
    const Timed timed(times_.checks);
    check_layer(plan, layer, gathered.writes);
  }
  const bool publishes_tables = observed && selection_.state_digests;
  std::vector<HeldTable> held;
  if (lifetimes_ || publishes_tables) held = engine_.held_tables();
  if (lifetimes_) lifetimes_->tables(held, plan);
  {
    const Timed timed(times_.stages);
    engine_.end_step(plan);
  }
  {
    const Timed timed(times_.checks);
    ledger_.end(plan);
    if (checker_) write_findings_ = checker_->after(engine_, plan);
    if (lifetimes_) {
      std::vector<compare::Finding> found = lifetimes_->end(plan);
      lifetimes_->name_writers(write_findings_);
      std::ranges::move(found, std::back_inserter(write_findings_));
    }
  }
  if (observed) {
    const Timed timed(times_.states);
    for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
      gather_state(plan, layer, observation.layers[static_cast<std::size_t>(layer)]);
    }
    if (publishes_tables) observation.tables = table_state(ledger_, plan, held);
  }
}

LiveSource::LiveSource(Runner& runner, const RunPlan& plan, std::string scenario, std::size_t first)
    : runner_(runner), plan_(plan), next_(first) {
  const EngineInfo engine = runner.engine().info();
  info_.engine = engine.name;
  info_.device = engine.device;
  info_.bit_exact = engine.bit_exact;
  info_.config = runner.engine().config();
  info_.scenario = std::move(scenario);
  for (std::size_t step = 0; step < std::min(first, plan.steps.size()); ++step) runner_.skip(plan.steps[step]);
}

const StepPlan* LiveSource::upcoming() const {
  return next_ < plan_.steps.size() ? &plan_.steps[next_] : nullptr;
}

std::optional<StepObservation> LiveSource::next() {
  const StepPlan* const plan = upcoming();
  if (plan == nullptr) return std::nullopt;
  ++next_;
  return runner_.run(*plan, hooks_);
}

}  // namespace dsv4::oracle
