/// Runs hand-made plans on the reference engine and keeps what each token and entry got, so that runs with
/// other chunks, batches or pages can be compared token by token.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "reference/engine.hpp"
#include "support/plan_builder.hpp"

namespace dsv4::reference::test {

inline RunConfig tiny_config(std::vector<LayerKind> layers, std::string_view profile = "canonical") {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named(profile);
  config.layers = std::move(layers);
  config.seed = 7;
  return config;
}

/// Key: layer, tensor path, request name, position of the token (or last position of the entry).
using TokenKey = std::tuple<int, std::string, std::string, int>;
using TokenBytes = std::map<TokenKey, std::vector<std::byte>>;

/// Tensors that say where something lies, or how wide the step was, may differ between equal runs.
inline bool places(TensorId id) {
  using enum TensorId;
  switch (id) {
    case window_slots:
    case compressed_slots:
    case compress_slot:
    case indexer_slot:
    case compress_state_slot:
    case indexer_state_slot:
    case compress_state_token:
    case indexer_state_token:
    case compress_request:
    case indexer_request:
    case compress_pool_request:
    case indexer_pool_request:
      return true;
    default:
      return false;
  }
}

/// Drives an engine step by step.
class Driver {
 public:
  Driver() = default;
  Driver(Driver&&) = default;
  virtual ~Driver() = default;
  virtual const RunConfig& config() const = 0;

  TokenBytes tokens;
  std::vector<LiveRequest> live;

  /// Made on first use.
  Engine& engine() {
    if (!engine_)
      engine_ = make_reference_engine(config(), seeded_weights(config()), seeded_hidden(config()));
    return *engine_;
  }

  /// Puts what `change` makes of the engine in its place.
  template <class Change>
  void wrap(Change change) {
    engine();
    engine_ = change(std::move(engine_));
  }

  void run(const StepPlan& plan) {
    engine().begin_step(plan);
    if (plan.kind == StepKind::compute || plan.kind == StepKind::restore) {
      for (int layer = 0; layer < std::ssize(config().layers); ++layer) {
        const LayerKind kind = config().layers[static_cast<std::size_t>(layer)];
        for (const Stage stage : execution_order(kind, plan.kind == StepKind::restore)) {
          engine().run_stage(plan, layer, stage);
        }
        if (plan.kind == StepKind::compute) keep(plan, layer, ratio(kind));
      }
    }
    engine().end_step(plan);
    live = plan.live;
  }
  /// Live rows of every cache of every layer, of one request.
  std::map<std::pair<int, Cache>, std::vector<std::byte>> state(int request) {
    std::map<std::pair<int, Cache>, std::vector<std::byte>> rows;
    const auto it = std::ranges::find(live, request, &LiveRequest::request);
    if (it == live.end()) throw InternalError("a request that is not live");
    for (int layer = 0; layer < std::ssize(config().layers); ++layer) {
      for (int cache = 0; cache < static_cast<int>(kCacheCount); ++cache) {
        const auto which = static_cast<Cache>(cache);
        if (!has_cache(config().layers[static_cast<std::size_t>(layer)], which)) continue;
        rows[{layer, which}] = engine().live_rows(layer, which, std::span(&*it, 1));
      }
    }
    return rows;
  }

 private:
  /// Scores and lists are cut to what the token sees: the rest of a row depends on the batch.
  void keep(const StepPlan& plan, int layer, int r) {
    for (const TensorInfo& info : tensor_catalogue()) {
      const Tensor* tensor = engine().tensor(layer, info.id);
      if (tensor == nullptr || places(info.id)) continue;
      const std::int64_t row =
          tensor->row_elements() * static_cast<std::int64_t>(size_bytes(tensor->dtype()));
      const auto bytes = tensor->bytes();
      const auto put = [&](std::int64_t at, const Row& owner, int position) {
        std::vector<std::byte> kept(bytes.begin() + at * row, bytes.begin() + (at + 1) * row);
        const bool ragged = info.id == TensorId::scores || info.id == TensorId::compressed_logical;
        if (ragged) {
          const int visible = r == 0 ? 0 : (position + 1) / r;
          const int items = info.id == TensorId::scores || r == 128
                                ? visible
                                : std::min(visible, config().geometry.index_topk);
          kept.resize(static_cast<std::size_t>(items) * 4);
        }
        tokens[{layer, path(info.id), config().requests[static_cast<std::size_t>(owner.request)], position}] =
            std::move(kept);
      };
      if (info.dims.starts_with("token")) {
        for (std::size_t at = 0; at < plan.rows.size(); ++at) {
          if (plan.rows[at].request >= 0)
            put(static_cast<std::int64_t>(at), plan.rows[at], plan.rows[at].position);
        }
      } else if (info.dims.starts_with("entry")) {
        std::int64_t at = 0;
        for (const Row& owner : plan.rows) {
          if (owner.request >= 0 && (owner.position + 1) % r == 0) put(at++, owner, owner.position);
        }
        require(at == tensor->dim(0), "an entry tensor has other rows than closing tokens");
      }
    }
  }

  std::unique_ptr<Engine> engine_;
};

/// Plans made by hand.
class Harness : public Driver {
 public:
  explicit Harness(RunConfig config) : plans(std::move(config)) {}
  const RunConfig& config() const override { return plans.config; }

  support::PlanBuilder plans;

  int admit(const std::string& name) { return plans.admit(name); }
  void step(const std::vector<support::Part>& parts) { run(plans.step(parts)); }
  void prefill(int request, int tokens_count) { step({{request, tokens_count}}); }
};

}  // namespace dsv4::reference::test
