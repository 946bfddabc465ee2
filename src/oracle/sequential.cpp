#include "oracle/sequential.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

/// True if every live window row of a request lies in a page that it holds.
bool window_held(const RunConfig& config, const LiveRequest& live) {
  const CacheShape window = cache_shape(config, 0, Cache::window);
  for (std::int32_t p = first_live_window(live.length); p < live.length; ++p) {
    if (slot_of(window, *live.tables, live.state_base, p) < 0) return false;
  }
  return true;
}

std::map<std::pair<int, Cache>, std::string> request_state(const Engine& engine, const LiveRequest& live) {
  std::map<std::pair<int, Cache>, std::string> state;
  const RunConfig& config = engine.config();
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(config.layers[static_cast<std::size_t>(layer)], cache)) continue;
      state[{layer, cache}] = live_state_digest(cache, engine.live_rows(layer, cache, {&live, 1}));
    }
  }
  return state;
}

/// The rows of a tensor that a mask keeps.
Tensor kept_rows(const Tensor& tensor, const std::vector<bool>& keep) {
  std::vector<std::int64_t> shape = tensor.shape();
  shape[0] = std::ranges::count(keep, true);
  Tensor kept(tensor.dtype(), shape);
  const std::size_t size = static_cast<std::size_t>(tensor.row_elements()) * size_bytes(tensor.dtype());
  std::size_t to = 0;
  for (std::size_t row = 0; row < keep.size(); ++row) {
    if (keep[row]) std::memcpy(kept.bytes().data() + size * to++, tensor.bytes().data() + size * row, size);
  }
  return kept;
}

}  // namespace

SequentialCheck::SequentialCheck(const RunPlan& run, const SourceInfo& info)
    : info_(info),
      keys_(compare::request_keys(run.config.requests)),
      reference_info_(std::make_unique<SourceInfo>(info)),
      aligner_(std::make_unique<compare::TokenAligner>(*reference_info_, info_,
                                                       compare::Rules(compare::RuleSet::bits))) {
  aligner_->compare_final_state(false);
  for (const StepPlan& step : run.steps) {
    for (const Row& row : step.rows) content_[{row.request, row.position}] = row.content;
    for (const LiveRequest& live : step.live) {
      if (window_held(run.config, live)) last_[live.request] = {step.index, live.length};
    }
  }
}

SequentialCheck::~SequentialCheck() = default;

void SequentialCheck::add(const Engine& engine, const StepPlan& plan, const StepObservation& observation) {
  for (const LiveRequest& live : plan.live) {
    const auto last = last_.find(live.request);
    if (last != last_.end() && last->second.step == plan.index && engine.info().byte_state) {
      state_[live.request] = request_state(engine, live);
    }
  }
  StepObservation kept = observation;
  drop_replaced(plan, kept);
  aligner_->add(compare::Side::subject, std::move(kept), keys_);
}

void SequentialCheck::drop_replaced(const StepPlan& plan, StepObservation& observation) const {
  for (LayerObservation& layer : observation.layers) {
    for (const auto& [stage, token] : {std::pair{Stage::compress_state, TensorId::compress_state_token},
                                       std::pair{Stage::indexer_state, TensorId::indexer_state_token}}) {
      const auto tokens = layer.tensors.find(token);
      if (tokens == layer.tensors.end()) continue;
      std::vector<bool> keep;
      for (const std::int32_t batch_row : tokens->second.as<std::int32_t>()) {
        const Row& row = plan.rows.at(static_cast<std::size_t>(batch_row));
        keep.push_back(content_.at({row.request, row.position}) == row.content);
      }
      if (std::ranges::find(keep, false) == keep.end()) continue;
      for (auto& [id, tensor] : layer.tensors) {
        if (info(id).stage == stage) tensor = kept_rows(tensor, keep);
      }
    }
  }
}

compare::StepComparison SequentialCheck::finish(const std::vector<RunPlan>& sequential,
                                                const std::string& engine_name, const EngineFactory& factory,
                                                std::shared_ptr<const WeightSource> weights,
                                                std::shared_ptr<const HiddenSource> hidden) {
  std::vector<compare::Finding> findings;
  for (const RunPlan& alone : sequential) {
    const std::unique_ptr<Engine> engine = factory(engine_name, alone.config, weights, hidden);
    Runner runner(*engine, Selection{.state_digests = false});
    for (const StepPlan& step : alone.steps) {
      aligner_->add(compare::Side::reference, runner.run(step), keys_);
    }
    if (alone.steps.empty()) continue;
    for (const LiveRequest& live : alone.steps.back().live) {
      const auto state = state_.find(live.request);
      if (state == state_.end() || last_.at(live.request).length != live.length) continue;
      for (const auto& [place, expected] : request_state(*engine, live)) {
        ++state_compared_;
        const std::string& found = state->second.at(place);
        if (found == expected) continue;
        ++state_failed_;
        compare::Finding finding;
        finding.step = last_.at(live.request).step;
        finding.layer = place.first;
        finding.kind = "state_not_sequential";
        finding.cache = place.second;
        finding.owner = keys_.at(static_cast<std::size_t>(live.request));
        finding.message = fmt::format(
            "live {} of request '{}' at length {} differs from the run in which it is alone "
            "(digest {}, alone {})",
            name(place.second), finding.owner, live.length, found, expected);
        findings.push_back(std::move(finding));
      }
    }
  }
  compare::StepComparison comparison = aligner_->compare();
  comparison.findings.insert(comparison.findings.end(), findings.begin(), findings.end());
  return comparison;
}

compare::Totals SequentialCheck::totals() const {
  compare::Totals totals = aligner_->totals();
  totals.compared += state_compared_;
  totals.elements += state_compared_;
  totals.findings += state_failed_;
  return totals;
}

}  // namespace dsv4::oracle
