// Events that move requests in and out; the events of plain rows come first.
#include <fmt/format.h>

#include <algorithm>

#include "model/error.hpp"
#include "scenario/event_json.hpp"
#include "scenario/planner.hpp"

namespace dsv4::scenario {
namespace {

/// A poisoned byte that reads as a large finite number in every format: e4m3 448, bf16 and f32 8.4e37, e2m1
/// -6 and 6.
constexpr std::uint8_t kLargeByte = 0x7E;
constexpr std::uint8_t kNanByte = 0xFF;

constexpr std::int64_t kMaxPoisonedPages = std::int64_t{1} << 24;

}  // namespace

void Planner::on(const Event& event, const Prefill& prefill) {
  compute(StepKind::compute, {prefill}, 0, event_json(event.body), Json::object());
}

void Planner::on(const Event& event, const Decode& decode) {
  for (std::int32_t turn = 1; turn <= decode.repeat.value; ++turn) {
    Json caused = Json::object();
    if (decode.repeat.value > 1) caused["repeat"] = {turn, decode.repeat.value};
    compute(StepKind::compute, {decode}, 0, event_json(event.body), std::move(caused));
  }
}

void Planner::on(const Event& event, const Verify& verify) {
  compute(StepKind::compute, {verify}, 0, event_json(event.body), Json::object());
}

void Planner::on(const Event& event, const Batch& batch) {
  compute(StepKind::compute, batch.parts, 0, event_json(event.body), Json::object());
}

void Planner::on(const Event& event, const Free& free) {
  const std::string& name = free.request.value;
  StepPlan step = begin(StepKind::lifecycle);
  Json caused = Json::object();
  if (RequestState* request = find_live(name)) {
    note_stream(*request);
    std::unique_ptr<RequestState> freed = remove(*request);
    if (free.keep) {
      const std::int32_t length = freed->length();
      memory_.drop_but_entries(*freed, step);
      caused["kept"] = length;
      kept_[name] = std::move(freed);
    } else {
      memory_.drop_all(*freed, step);
    }
  } else if (const auto found = preempted_.find(name); found != preempted_.end()) {
    if (free.keep)
      fail(free.request.mark, fmt::format("request {} is preempted: it holds no pages to keep", name));
    note_stream(*found->second);
    preempted_.erase(found);
  } else if (kept_.contains(name)) {
    if (free.keep) fail(free.request.mark, fmt::format("request {} was freed already", name));
    end_keep(name, step);
    caused["kept_ended"] = name;
  } else {
    live(free.request);  // refuses
  }
  end(std::move(step), event_json(event.body), caused);
}

void Planner::on(const Event& event, const Preempt& preempt) {
  RequestState& request = live(preempt.request);
  StepPlan step = begin(StepKind::lifecycle);
  std::unique_ptr<RequestState> parked = remove(request);
  memory_.drop_all(*parked, step);
  preempted_[preempt.request.value] = std::move(parked);
  end(std::move(step), event_json(event.body), Json::object());
}

void Planner::on(const Event& event, const Resume& resume) {
  const auto found = preempted_.find(resume.request.value);
  if (found == preempted_.end()) {
    if (find_live(resume.request.value) != nullptr) {
      fail(resume.request.mark, fmt::format("request {} is not preempted", resume.request.value));
    }
    live(resume.request);  // refuses
  }
  std::unique_ptr<RequestState> parked = std::move(found->second);
  preempted_.erase(found);
  parked->base = memory_.bases().take();
  rebuild(begin(StepKind::restore), insert(std::move(parked)), resume.chunk, event_json(event.body),
          Json::object());
}

void Planner::on(const Event& event, const Rewind& rewind) {
  RequestState& request = live(rewind.request);
  const std::int32_t to = rewind.to.value;
  if (to > request.length()) {
    fail(rewind.to.mark,
         fmt::format("cannot rewind request {} to {}: it has {} tokens", request.name, to, request.length()));
  }
  StepPlan step = begin(StepKind::lifecycle);
  Json caused{{"discarded", request.length() - to}};
  request.cut(to);
  restore(step, request, caused);
  end(std::move(step), event_json(event.body), caused);
}

void Planner::on(const Event& event, const HitPrefix& hit) {
  refuse_admitted(hit.request);
  const std::string& from = hit.from.value;
  RequestState* donor = find_live(from);
  if (donor == nullptr) {
    const auto kept = kept_.find(from);
    if (kept == kept_.end()) live(hit.from);  // refuses
    donor = kept->second.get();
  }
  const std::int32_t tokens = hit.tokens.value;
  std::int32_t largest = 1;
  for (const LayerKind kind : config_.layers) largest = std::max(largest, ratio(kind));
  if (tokens > donor->length()) {
    fail(hit.tokens.mark, fmt::format("a prefix of {} tokens is longer than the {} of request {}", tokens,
                                      donor->length(), from));
  }
  if (tokens % largest != 0) {
    fail(hit.tokens.mark,
         fmt::format("a prefix of {} tokens is not a multiple of {}, the run's largest ratio", tokens,
                     largest));
  }
  StepPlan step = begin(StepKind::lifecycle);
  RequestState& request = admit(hit.request.value);
  const auto ids = donor->identity.ids.begin();
  request.identity.ids.assign(ids, ids + tokens);
  request.identity.length = tokens;
  request.identity.filled = std::min(donor->identity.filled, tokens);
  memory_.share_prefix(request, *donor, Pool::entries_c4, tokens / 4, step);
  memory_.share_prefix(request, *donor, Pool::index, tokens / 4, step);
  memory_.share_prefix(request, *donor, Pool::entries_c128, tokens / 128, step);
  request.held.entries_c4 = tokens / 4;
  request.held.entries_c128 = tokens / 128;
  step.prefix.push_back({request.index, donor->index, tokens});
  Json caused{{"admitted", {request.name}}};
  restore(step, request, caused);
  end_keep(hit.request.value, step);
  end(std::move(step), event_json(event.body), caused);
}

void Planner::on(const Event& event, const Save& save) {
  const RequestState& request = live(save.request);
  if (snapshots_.contains(save.as.value)) {
    fail(save.as.mark, fmt::format("snapshot {} exists already", save.as.value));
  }
  snapshots_[save.as.value] = request.identity;
  end(begin(StepKind::lifecycle), event_json(event.body), {{"tokens", request.length()}});
}

void Planner::on(const Event& event, const Load& load) {
  refuse_admitted(load.request);
  const auto snapshot = snapshots_.find(load.from.value);
  if (snapshot == snapshots_.end()) fail(load.from.mark, fmt::format("unknown snapshot {}", load.from.value));
  StepPlan step = begin(StepKind::restore);
  RequestState& request = admit(load.request.value);
  request.identity = snapshot->second;
  Json caused{{"admitted", {request.name}}};
  rebuild(std::move(step), request, load.chunk, event_json(event.body), std::move(caused));
}

void Planner::on(const Event& event, const Evict& evict) {
  StepPlan step = begin(StepKind::lifecycle);
  if (evict.what == Evict::What::window) {
    RequestState& request = live(evict.request);
    memory_.drop(request, Pool::window, step);
    request.window_evicted = true;
  } else if (!end_keep(evict.request.value, step)) {
    fail(evict.request.mark, fmt::format("request {} keeps no pages", evict.request.value));
  }
  const Json caused{{"pages", step.released.size()}};
  end(std::move(step), event_json(event.body), caused);
}

void Planner::on(const Event& event, const PoisonMemory& poison) {
  const bool fresh = poison.what == PoisonMemory::What::unused;
  StepPlan step = begin(StepKind::lifecycle);
  step.poison.emplace();
  step.poison->value = poison.value == PoisonMemory::Value::nan ? kNanByte : kLargeByte;
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    const auto pool = static_cast<Pool>(i);
    if (fresh && memory_.pool(pool).usable().value_or(0) > kMaxPoisonedPages) {
      fail(event.mark,
           fmt::format("pool {} has more than {} pages to poison", name(pool), kMaxPoisonedPages));
    }
    for (const std::int32_t page : memory_.pool(pool).free_pages(fresh))
      step.poison->pages.push_back({pool, page});
  }
  const std::int32_t bases = std::max(config_.state_bases, memory_.bases().peak());
  step.poison->state_bases = memory_.bases().free_bases(bases, fresh);
  const Json caused{{"pages", step.poison->pages.size()}, {"state_bases", step.poison->state_bases.size()}};
  end(std::move(step), event_json(event.body), caused);
}

void Planner::on(const Event& event, const FillCaches& fill) {
  refuse_admitted(fill.request);
  StepPlan step = begin(StepKind::fill);
  RequestState& request = admit(fill.request.value);
  synthesise(step, request, fill.tokens.value);
  end_keep(fill.request.value, step);
  end(std::move(step), event_json(event.body), {{"admitted", {request.name}}});
}

void Planner::on(const Event& event, const Capture& capture) {
  if (graphs_.contains(capture.as.value))
    fail(capture.as.mark, fmt::format("graph {} exists already", capture.as.value));
  graphs_[capture.as.value] = capture.rows.value;
  StepPlan step = begin(StepKind::graph);
  step.rows.resize(static_cast<std::size_t>(capture.rows.value));  // captured over padding
  end(std::move(step), event_json(event.body), Json::object());
}

void Planner::on(const Event& event, const ReplayGraph& replay) {
  const auto graph = graphs_.find(replay.from.value);
  if (graph == graphs_.end()) fail(replay.from.mark, fmt::format("unknown graph {}", replay.from.value));
  compute(StepKind::graph, replay.batch.parts, graph->second, event_json(event.body), Json::object());
}

}  // namespace dsv4::scenario
