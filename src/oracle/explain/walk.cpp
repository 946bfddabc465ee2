#include "oracle/explain/walk.hpp"

#include <utility>

#include "model/error.hpp"

namespace dsv4::oracle::explain {
namespace {

class ForeignEngine : public Foreign {
 public:
  ForeignEngine(std::unique_ptr<Engine> engine, RunPlan plan, bool check_writes)
      : writes_(check_writes), walk_(std::move(engine), std::move(plan), {check_writes, false}) {}
  const SourceInfo& info() const override { return walk_.info(); }
  Gathered gathered() const override { return {writes_, false}; }
  std::optional<SeenStep> step(std::int64_t index) override {
    if (walk_.upcoming() == nullptr || walk_.upcoming()->index != index) return std::nullopt;
    return walk_.next();
  }

 private:
  bool writes_;
  Walk walk_;
};

class ForeignDump : public Foreign {
 public:
  explicit ForeignDump(io::DumpReader& dump) : dump_(dump) {
    if (dump.steps().empty()) return;
    for (const LayerObservation& layer : dump.read_step(dump.steps().front()).layers)
      snapshots_ = snapshots_ || !layer.state_tensors.empty();
  }
  const SourceInfo& info() const override { return dump_.info(); }
  Gathered gathered() const override { return {false, snapshots_}; }
  std::optional<SeenStep> step(std::int64_t index) override {
    if (!dump_.has_step(index)) return std::nullopt;
    return SeenStep{dump_.read_step(index), {}, ""};
  }

 private:
  io::DumpReader& dump_;
  bool snapshots_ = false;
};

}  // namespace

Walk::Walk(std::unique_ptr<Engine> engine, RunPlan plan, Gathered gathered)
    : plan_(std::move(plan)), engine_(std::move(engine)) {
  if (!engine_->info().graphs) run_graphs_as_steps(plan_);
  Selection selection;
  selection.snapshots = gathered.snapshots;
  runner_ = std::make_unique<Runner>(*engine_, selection);
  if (gathered.writes) {
    runner_->check_writes();
    runner_->check_lifetimes();
  }
  source_ = std::make_unique<LiveSource>(*runner_, plan_, "");
}

SeenStep Walk::next(StageHooks hooks) {
  SeenStep seen;
  source_->set_hooks(std::move(hooks));
  try {
    seen.observation = *source_->next();
    seen.findings = runner_->write_findings();
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    stopped_ = true;
    seen.stopped = error.what();
    seen.findings = runner_->write_findings();
    if (runner_->broken_off()) seen.observation = std::move(*runner_->broken_off());
  }
  return seen;
}

std::unique_ptr<Foreign> foreign_engine(std::unique_ptr<Engine> engine, RunPlan plan, bool check_writes) {
  return std::make_unique<ForeignEngine>(std::move(engine), std::move(plan), check_writes);
}

std::unique_ptr<Foreign> foreign_dump(io::DumpReader& dump) {
  return std::make_unique<ForeignDump>(dump);
}

std::int64_t bytes_of(const StepObservation& step) {
  std::int64_t bytes = 0;
  for (const LayerObservation& layer : step.layers) {
    for (const auto& [id, tensor] : layer.tensors) bytes += static_cast<std::int64_t>(tensor.bytes().size());
    for (const auto& [name, tensor] : layer.state_tensors)
      bytes += static_cast<std::int64_t>(tensor.bytes().size());
    for (const Write& write : layer.writes) bytes += static_cast<std::int64_t>(write.bytes.size());
  }
  return bytes;
}

}  // namespace dsv4::oracle::explain
