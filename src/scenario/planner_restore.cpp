// Steps that bring back device state: what is live and there is kept, the rest is computed again.
#include <fmt/format.h>

#include <algorithm>

#include "model/error.hpp"
#include "scenario/planner.hpp"

namespace dsv4::scenario {

void Planner::restore(StepPlan& step, RequestState& request, Json& caused) {
  const std::int32_t length = request.length();
  const Missing missing = missing_at(request.held, config_.layers, length);
  const std::int32_t begin = missing.any ? missing.begin : length;
  const std::int32_t end = missing.any ? missing.end : length;
  if (missing.any && begin < request.identity.filled) {
    fail(mark_, fmt::format(
                    "request {} needs position {} again, but its first {} tokens come from a fill and cannot "
                    "be recomputed",
                    request.name, begin, request.identity.filled));
  }
  memory_.cover_step(request, begin, end, length, missing.from, false, step);
  step.kind = missing.any ? StepKind::restore : StepKind::lifecycle;
  if (missing.any) {
    RequestStep share;
    share.request = request.index;
    share.first_row = static_cast<std::int32_t>(step.rows.size());
    share.row_count = end - begin;
    share.begin = begin;
    share.end = end;
    share.committed = length;
    share.state_base = request.base;
    share.tables = request.snapshot();
    share.from = missing.from;
    for (std::int32_t p = begin; p < end; ++p) {
      step.rows.push_back({request.index, p, request.identity.ids[static_cast<std::size_t>(p)]});
    }
    step.requests.push_back(std::move(share));
    caused["restored"].push_back({{"request", request.name}, {"begin", begin}, {"end", end}});

    HeldRows& held = request.held;
    for (std::int32_t p = std::max(begin, missing.from.window); p < end; ++p) held.write_window(p);
    const auto write_state = [&](LayerKind kind, StateRows& rows, std::int32_t from) {
      const bool online = rows.form() == StateRows::Form::online;
      const std::int32_t first = std::max({begin, from, online ? 0 : first_live_state(kind, length)});
      for (std::int32_t p = first; p < end; ++p) rows.write(p);
    };
    write_state(LayerKind::csa, held.state_c4, missing.from.state_c4);
    write_state(LayerKind::hca, held.state_c128, missing.from.state_c128);
    held.entries_c4 = length / 4;
    held.entries_c128 = length / 128;
  }
  request.window_evicted = false;
  memory_.settle(request, step);
}

void Planner::rebuild(StepPlan first, RequestState& request, std::optional<std::int32_t> chunk,
                      const Json& event, Json caused) {
  const std::int32_t length = request.length();
  std::int32_t reached = 0;
  StepPlan step = std::move(first);
  do {
    reached = chunk ? std::min(length, reached + *chunk) : length;
    request.identity.length = reached;
    restore(step, request, caused);
    end_keep(request.name, step);
    caused["length"] = reached;
    end(std::move(step), event, caused);
    step = begin(StepKind::restore);
    caused = Json::object();
  } while (reached < length);
}

void Planner::restore_evicted(const std::string& name) {
  RequestState* request = find_live(name);
  if (request == nullptr || !request->window_evicted) return;
  StepPlan step = begin(StepKind::restore);
  Json caused = Json::object();
  restore(step, *request, caused);
  end(std::move(step), {{"restore", {{"request", name}}}}, caused);
}

void Planner::synthesise(StepPlan& step, RequestState& request, std::int32_t tokens) {
  for (std::int32_t p = 0; p < tokens; ++p) request.commit(p, request.content(p));
  request.identity.filled = tokens;
  KeepFrom from;
  from.window = first_live_window(tokens);
  memory_.cover_step(request, 0, tokens, tokens, from, false, step);
  for (std::int32_t p = from.window; p < tokens; ++p) request.held.write_window(p);
  const auto write_state = [&](LayerKind kind, StateRows& rows) {
    for (std::int32_t p = first_live_state(kind, tokens); p < tokens; ++p) rows.write(p);
  };
  write_state(LayerKind::csa, request.held.state_c4);
  write_state(LayerKind::hca, request.held.state_c128);
  request.held.entries_c4 = tokens / 4;
  request.held.entries_c128 = tokens / 128;
  step.fill = Fill{request.index, tokens};
  memory_.settle(request, step);
}

}  // namespace dsv4::scenario
