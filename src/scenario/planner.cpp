#include "scenario/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/error.hpp"
#include "scenario/event_json.hpp"
#include "scenario/yaml_node.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::int64_t kMaxPlannedRows = std::int64_t{1} << 26;

}  // namespace

Planner::Planner(RunConfig config, const Trace& trace, std::string file, bool limited)
    : config_(std::move(config)),
      trace_(trace),
      file_(std::move(file)),
      memory_(config_, limited),
      source_(file_) {}

void Planner::fail(Mark mark, const std::string& message) const {
  fail_at(file_, mark, fmt::format("step {}: {}", steps_.size(), message));
}

void Planner::run(const Event& event) {
  mark_ = event.mark;
  source_ = fmt::format("{}:{}", file_, event.mark.line);
  try {
    std::visit([&](const auto& body) { on(event, body); }, event.body);
  } catch (const PoolEmpty& empty) {
    fail(event.mark, fmt::format("request {}: pool {} is empty, all of its {} pages are held", empty.request,
                                 name(empty.pool), empty.usable));
  }
}

void Planner::run_alone(const std::string& name, const Stream& stream) {
  auto made = std::make_unique<RequestState>();
  made->index = stream.request;
  made->name = name;
  made->base = memory_.bases().take();
  made->held = HeldRows::none(config_.cache);
  made->given = stream.ids;
  RequestState& request = insert(std::move(made));
  try {
    if (stream.filled > 0) {
      StepPlan step = begin(StepKind::fill);
      const FillCaches fill{{name, {}}, {stream.filled, {}}};
      synthesise(step, request, stream.filled);
      end(std::move(step), event_json(fill), Json::object());
    }
    const Prefill one{{name, {}}, {1, {}}};
    while (static_cast<std::size_t>(request.length()) < stream.ids.size()) {
      compute(StepKind::compute, {one}, 0, event_json(one), Json::object());
    }
  } catch (const PoolEmpty& empty) {
    throw UsageError(
        fmt::format("{}: request {} alone: pool {} is empty", file_, name, dsv4::name(empty.pool)));
  }
}

RunPlan Planner::take() {
  return {config_, std::move(steps_)};
}

std::vector<Stream> Planner::streams() const {
  std::vector<Stream> all = streams_;
  const auto add = [&](const RequestState& request) {
    all.push_back({request.index, request.identity.ids, request.identity.filled});
  };
  for (const auto& request : live_) add(*request);
  for (const auto& [name, request] : preempted_) add(*request);
  std::ranges::sort(all, {}, &Stream::request);
  return all;
}

// Steps.

StepPlan Planner::begin(StepKind kind) const {
  StepPlan step;
  step.index = static_cast<std::int64_t>(steps_.size());
  step.kind = kind;
  step.source = source_;
  return step;
}

void Planner::end(StepPlan step, Json event, const Json& caused) {
  rows_ += static_cast<std::int64_t>(step.rows.size());
  if (rows_ > kMaxPlannedRows) fail(mark_, fmt::format("the run has more than {} rows", kMaxPlannedRows));
  if (!caused.empty()) event["caused"] = caused;
  step.event = event.dump();
  for (const auto& request : live_) {
    require(request->window_evicted || !missing_at(request->held, config_.layers, request->length()).any,
            "a live row is missing after a step");
    step.live.push_back({request->index, request->length(), request->base, request->snapshot()});
  }
  steps_.push_back(std::move(step));
}

void Planner::compute(StepKind kind, const std::vector<BatchPart>& parts, std::int32_t padded_to, Json event,
                      Json caused) {
  for (const BatchPart& part : parts) {
    if (const Prefill* prefill = std::get_if<Prefill>(&part)) restore_evicted(prefill->request.value);
    if (const Verify* verify = std::get_if<Verify>(&part)) restore_evicted(verify->request.value);
    if (const Decode* decode = std::get_if<Decode>(&part)) {
      for (const At<std::string>& request : decode->requests) restore_evicted(request.value);
    }
  }
  StepPlan step = begin(kind);
  std::vector<Part> shares;
  for (const BatchPart& part : parts) {
    if (const Pad* pad = std::get_if<Pad>(&part)) {
      step.rows.resize(step.rows.size() + static_cast<std::size_t>(pad->rows.value));
      continue;
    }
    for (const Part& share : resolve(part, step, caused)) {
      add_rows(step, share);
      shares.push_back(share);
    }
  }
  if (padded_to > 0) {
    if (step.rows.size() > static_cast<std::size_t>(padded_to)) {
      fail(mark_, fmt::format("{} rows do not fit the graph's {}", step.rows.size(), padded_to));
    }
    step.rows.resize(static_cast<std::size_t>(padded_to));
  }
  for (const Part& share : shares) commit(step, share, caused);
  for (const Part& share : shares) end_keep(share.request->name, step);
  end(std::move(step), std::move(event), caused);
}

std::vector<Planner::Part> Planner::resolve(const BatchPart& part, StepPlan& step, Json& caused) {
  std::vector<Part> shares;
  const auto add = [&](const At<std::string>& name, RequestState& request, std::int32_t rows,
                       std::int32_t accept, bool verify) {
    const auto taken = [&](const RequestStep& other) { return other.request == request.index; };
    if (std::ranges::any_of(step.requests, taken)) {
      fail(name.mark, fmt::format("request {} takes part twice in one step", name.value));
    }
    check_length(name, std::int64_t{request.length()} + rows);
    shares.push_back({&request, rows, accept, verify});
  };
  if (const Prefill* prefill = std::get_if<Prefill>(&part)) {
    const std::string& name = prefill->request.value;
    RequestState* request = find_live(name);
    if (request == nullptr) {
      if (preempted_.contains(name)) live(prefill->request);  // refuses
      request = &admit(name);
      caused["admitted"].push_back(name);
    }
    add(prefill->request, *request, prefill->tokens.value, prefill->tokens.value, false);
  } else if (const Decode* decode = std::get_if<Decode>(&part)) {
    for (const At<std::string>& name : decode->requests) add(name, live(name), 1, 1, false);
  } else if (const Verify* verify = std::get_if<Verify>(&part)) {
    add(verify->request, live(verify->request), verify->rows.value, verify->accept.value, true);
  }
  return shares;
}

void Planner::add_rows(StepPlan& step, const Part& part) {
  RequestState& request = *part.request;
  RequestStep share;
  share.request = request.index;
  share.first_row = static_cast<std::int32_t>(step.rows.size());
  share.row_count = part.rows;
  share.begin = request.length();
  share.end = share.begin + part.rows;
  share.committed = share.begin + part.accept;
  share.verify = part.verify;
  share.state_base = request.base;
  memory_.cover_step(request, share.begin, share.end, share.committed, KeepFrom{}, part.verify, step);
  share.tables = request.snapshot();
  for (std::int32_t p = share.begin; p < share.end; ++p) {
    step.rows.push_back({request.index, p, request.content(p)});
  }
  step.requests.push_back(std::move(share));
}

void Planner::commit(StepPlan& step, const Part& part, Json& caused) {
  RequestState& request = *part.request;
  const std::int32_t begin = request.length();
  const std::int32_t end = begin + part.rows;
  const std::int32_t committed = begin + part.accept;
  for (std::int32_t p = begin; p < committed; ++p) {
    request.commit(p, request.content(p));
    request.held.write_window(p);
  }
  const auto write_state = [&](LayerKind kind, StateRows& rows) {
    const bool online = rows.form() == StateRows::Form::online;
    const std::int32_t first = part.verify || online ? begin : std::max(begin, first_live_state(kind, end));
    const std::int32_t last = online ? committed : end;
    for (std::int32_t p = first; p < last; ++p) rows.write(p);
  };
  write_state(LayerKind::csa, request.held.state_c4);
  write_state(LayerKind::hca, request.held.state_c128);
  request.held.entries_c4 = committed / 4;
  request.held.entries_c128 = committed / 128;
  if (committed < end) {
    request.cut(committed);
    caused["rejected"][request.name] = end - committed;
  }
  memory_.settle(request, step);
}

// Requests.

RequestState* Planner::find_live(const std::string& name) const {
  const auto found = std::ranges::find(live_, name, [](const auto& request) { return request->name; });
  return found == live_.end() ? nullptr : found->get();
}

RequestState& Planner::live(const At<std::string>& name) const {
  if (RequestState* request = find_live(name.value)) return *request;
  if (preempted_.contains(name.value)) {
    fail(name.mark, fmt::format("request {} is preempted; resume it first", name.value));
  }
  if (kept_.contains(name.value)) fail(name.mark, fmt::format("request {} was freed", name.value));
  fail(name.mark, fmt::format("unknown request {}", name.value));
}

void Planner::refuse_admitted(const At<std::string>& name) const {
  if (find_live(name.value) != nullptr || preempted_.contains(name.value)) {
    fail(name.mark, fmt::format("request {} is admitted already", name.value));
  }
}

RequestState& Planner::admit(const std::string& name) {
  auto request = std::make_unique<RequestState>();
  request->index = static_cast<std::int32_t>(config_.requests.size());
  request->name = name;
  request->base = memory_.bases().take();
  request->held = HeldRows::none(config_.cache);
  request->trace = &trace_;
  config_.requests.push_back(name);
  return insert(std::move(request));
}

RequestState& Planner::insert(std::unique_ptr<RequestState> request) {
  const auto place =
      std::ranges::lower_bound(live_, request->index, {}, [](const auto& other) { return other->index; });
  return **live_.insert(place, std::move(request));
}

std::unique_ptr<RequestState> Planner::remove(RequestState& request) {
  const auto place = std::ranges::find(live_, &request, [](const auto& other) { return other.get(); });
  std::unique_ptr<RequestState> removed = std::move(*place);
  live_.erase(place);
  return removed;
}

bool Planner::end_keep(const std::string& name, StepPlan& step) {
  const auto found = kept_.find(name);
  if (found == kept_.end()) return false;
  memory_.drop_all(*found->second, step);
  kept_.erase(found);
  return true;
}

void Planner::note_stream(const RequestState& request) {
  streams_.push_back({request.index, request.identity.ids, request.identity.filled});
}

void Planner::check_length(const At<std::string>& name, std::int64_t length) const {
  if (length > kMaxTokens) {
    fail(name.mark,
         fmt::format("request {} would grow to {} tokens, more than {}", name.value, length, kMaxTokens));
  }
}

}  // namespace dsv4::scenario
