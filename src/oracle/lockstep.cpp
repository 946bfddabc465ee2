#include "oracle/lockstep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/layout.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

const Tensor& needed(const StepObservation& observation, int layer, TensorId id) {
  const auto& tensors = observation.layers.at(static_cast<std::size_t>(layer)).tensors;
  const auto found = tensors.find(id);
  if (found == tensors.end()) {
    throw UsageError(fmt::format("step {}, layer {}: the reference does not hold {}, which feeding needs",
                                 observation.step, layer, path(id)));
  }
  return found->second;
}

void append_row(std::vector<std::byte>& bytes, const Tensor& tensor, std::int64_t row) {
  const std::size_t size = static_cast<std::size_t>(tensor.row_elements()) * size_bytes(tensor.dtype());
  const auto source = tensor.bytes().subspan(static_cast<std::size_t>(row) * size, size);
  bytes.insert(bytes.end(), source.begin(), source.end());
}

std::vector<Write> window_writes(const StepPlan& plan, int layer, const StepObservation& observation) {
  const Tensor& rows = needed(observation, layer, TensorId::window_page_bytes);
  const auto slots = observation.batch.slot.as<std::int32_t>();
  std::vector<Write> writes;
  for (const RequestStep& request : plan.requests) {
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const std::int32_t row = request.first_row + i;
      const std::int32_t position = request.begin + i;
      if (position < request.from.window || slots[static_cast<std::size_t>(row)] < 0) continue;
      Write write{Stage::kv_window, Cache::window, slots[static_cast<std::size_t>(row)],
                  request.request,  position,      {}};
      append_row(write.bytes, rows, row);
      writes.push_back(std::move(write));
    }
  }
  return writes;
}

struct EntryTensors {
  Stage stage;
  Cache cache;
  TensorId request, index, slot, bytes;
};

std::vector<Write> entry_writes(const EntryTensors& ids, int layer, const StepObservation& observation) {
  const auto requests = needed(observation, layer, ids.request).as<std::int32_t>();
  const auto indices = needed(observation, layer, ids.index).as<std::int32_t>();
  const auto slots = needed(observation, layer, ids.slot).as<std::int32_t>();
  const Tensor& rows = needed(observation, layer, ids.bytes);
  std::vector<Write> writes;
  for (std::size_t entry = 0; entry < slots.size(); ++entry) {
    Write write{ids.stage, ids.cache, slots[entry], requests[entry], indices[entry], {}};
    append_row(write.bytes, rows, static_cast<std::int64_t>(entry));
    writes.push_back(std::move(write));
  }
  return writes;
}

struct StateTensors {
  Stage stage;
  Cache cache;
  TensorId slot, token;
  std::vector<TensorId> parts;
};

std::vector<Write> state_writes(const StateTensors& ids, const StepPlan& plan, int layer,
                                const StepObservation& observation) {
  const auto slots = needed(observation, layer, ids.slot).as<std::int32_t>();
  const auto tokens = needed(observation, layer, ids.token).as<std::int32_t>();
  std::vector<Write> writes;
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const Row& token = plan.rows.at(static_cast<std::size_t>(tokens[row]));
    Write write{ids.stage, ids.cache, slots[row], token.request, token.position, {}};
    for (const TensorId part : ids.parts) {
      append_row(write.bytes, needed(observation, layer, part), static_cast<std::int64_t>(row));
    }
    writes.push_back(std::move(write));
  }
  return writes;
}

/// A row out of a file goes into a cache only where it belongs.
void require_fit(const RunConfig& config, int layer, const Write& row) {
  const CacheShape shape = cache_shape(config, layer, row.cache);
  const Profile& profile = config.profile;
  const std::int64_t bytes = shape.channels > 0 ? shape.row_bytes()
                             : row.cache == Cache::index_entries
                                 ? layout::row_form(profile.get<IndexCache>()).row_bytes()
                                 : layout::row_form(profile.get<KvCache>()).row_bytes();
  const std::int64_t slots = physical_rows(config, shape) * (shape.paged ? shape.page_rows : 1);
  if (row.slot >= 0 && row.slot < slots && static_cast<std::int64_t>(row.bytes.size()) == bytes) return;
  throw UsageError(
      fmt::format("the reference dump cannot be fed: layer {} '{}' has {} rows of {} bytes, the dump writes "
                  "{} bytes to row {}",
                  layer, name(row.cache), slots, bytes, row.bytes.size(), row.slot));
}

/// A dump is fed row by row: its step must be the same batch.
void require_same_rows(const StepPlan& plan, const StepObservation& dump) {
  const auto requests = dump.batch.request.as<std::int32_t>();
  const auto positions = dump.batch.position.as<std::int32_t>();
  bool same = requests.size() == plan.rows.size() && positions.size() == plan.rows.size();
  for (std::size_t row = 0; same && row < plan.rows.size(); ++row) {
    same = requests[row] == plan.rows[row].request && positions[row] == plan.rows[row].position;
  }
  const std::size_t slots = static_cast<std::size_t>(dump.batch.slot.elements());
  if (!same || slots != plan.rows.size()) {
    throw UsageError(fmt::format(
        "the reference dump holds another batch in step {} (other rows, or no slots), so it cannot be fed",
        plan.index));
  }
}

}  // namespace

std::vector<Write> writes_from_tensors(const RunConfig& config, const StepPlan& plan, int layer, Stage stage,
                                       const StepObservation& observation) {
  using enum TensorId;
  switch (stage) {
    case Stage::kv_window:
      return window_writes(plan, layer, observation);
    case Stage::compress_finish:
      return entry_writes(
          {stage, Cache::entries, compress_request, compress_index, compress_slot, compress_page_bytes},
          layer, observation);
    case Stage::indexer_finish:
      return entry_writes(
          {stage, Cache::index_entries, indexer_request, indexer_index, indexer_slot, indexer_page_bytes},
          layer, observation);
    case Stage::compress_state: {
      const bool online = config.layers.at(static_cast<std::size_t>(layer)) == LayerKind::hca &&
                          config.cache.c128_state == C128State::online;
      const std::vector<TensorId> parts =
          online ? std::vector{compress_state_max, compress_state_sum, compress_state_kv}
                 : std::vector{compress_state_kv, compress_state_score};
      return state_writes({stage, Cache::state, compress_state_slot, compress_state_token, parts}, plan,
                          layer, observation);
    }
    case Stage::indexer_state:
      return state_writes({stage,
                           Cache::index_state,
                           indexer_state_slot,
                           indexer_state_token,
                           {indexer_state_kv, indexer_state_score}},
                          plan, layer, observation);
    default:
      return {};
  }
}

Lockstep::Lockstep(LiveSource& subject, ObservationSource& reference, Feed feed)
    : subject_(subject),
      reference_(reference),
      live_reference_(dynamic_cast<LiveSource*>(&reference)),
      feed_(feed) {
  if (feed_ == Feed::independent) return;
  subject_leads_ = live_reference_ != nullptr && subject.info().bit_exact && !reference.info().bit_exact;
  const auto index_cache = [](const SourceInfo& info) { return info.config.profile.get<IndexCache>(); };
  if (index_cache(subject.info()) != index_cache(reference.info())) {
    throw UsageError(
        fmt::format("the two sides hold index rows in different formats (index_cache {} and {}), so one "
                    "cannot be fed to the other",
                    subject.info().config.profile.value(Axis::index_cache),
                    reference.info().config.profile.value(Axis::index_cache)));
  }
}

std::optional<StepObservation> Lockstep::next_reference(std::int64_t step) {
  if (!pending_) pending_ = reference_.next();
  while (pending_ && pending_->step < step) pending_ = reference_.next();
  if (!pending_ || pending_->step != step) return std::nullopt;
  return std::exchange(pending_, std::nullopt);
}

StepObservation Lockstep::follow(LiveSource& follower, const StepObservation& leader) {
  Engine& engine = follower.engine();
  const StepPlan& plan = *follower.upcoming();
  const auto give = [&](int layer, Stage stage) {
    for (const auto& [id, tensor] : leader.layers.at(static_cast<std::size_t>(layer)).tensors) {
      if (info(id).stage == stage) engine.set_tensor(layer, id, tensor);
    }
  };
  StageHooks hooks;
  // An engine that is not exact in bits also takes the leader's values between the roundings of a stage, so
  // that a rounding that falls to the other side is not spread over what the stage makes of it. Others are
  // given nothing, or a tensor that they fail to publish would look right.
  if (!follower.info().bit_exact) hooks.before = give;
  hooks.after = [&](int layer, Stage stage) {
    give(layer, stage);
    const LayerObservation& source = leader.layers.at(static_cast<std::size_t>(layer));
    std::vector<Write> rows;
    if (source.writes.empty()) {
      rows = writes_from_tensors(engine.config(), plan, layer, stage, leader);
      for (const Write& row : rows) require_fit(engine.config(), layer, row);
    } else {
      std::ranges::copy_if(source.writes, std::back_inserter(rows),
                           [&](const Write& w) { return w.stage == stage; });
    }
    if (!rows.empty()) follower.replace_rows(layer, rows);
  };
  follower.set_hooks(std::move(hooks));
  StepObservation observed = *follower.next();
  follower.set_hooks({});
  return observed;
}

std::optional<Lockstep::Pair> Lockstep::next() {
  const StepPlan* const plan = subject_.upcoming();
  if (plan == nullptr) return std::nullopt;
  led_.reset();
  Pair pair;
  if (feed_ == Feed::independent) {
    led_ = next_reference(plan->index);
    pair.subject = *subject_.next();
    pair.reference = std::exchange(led_, std::nullopt);
    return pair;
  }
  if (subject_leads_) {
    pair.subject = *subject_.next();
    pair.reference = follow(*live_reference_, pair.subject);
    return pair;
  }
  led_ = next_reference(plan->index);
  if (!led_) {
    throw UsageError(
        fmt::format("the reference dump does not hold step {}, which feeding needs", plan->index));
  }
  if (live_reference_ == nullptr) require_same_rows(*plan, *led_);
  pair.subject = follow(subject_, *led_);
  pair.reference = std::exchange(led_, std::nullopt);
  return pair;
}

std::optional<Lockstep::Pair> Lockstep::broken_off() {
  std::optional<StepObservation>& seen = subject_.broken_off();
  if (!led_ || !seen || seen->step != led_->step) return std::nullopt;
  return Pair{std::exchange(led_, std::nullopt), *std::exchange(seen, std::nullopt)};
}

}  // namespace dsv4::oracle
