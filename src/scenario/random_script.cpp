#include "scenario/random_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dsv4::scenario {
namespace {

constexpr int kMostRows = 9;  ///< of a verify step: what a doubled ratio-4 ring has room for

At<std::string> at(const std::string& name) {
  return {name, {}};
}
At<std::int32_t> at(int number) {
  return {number, {}};
}

}  // namespace

RandomScript::RandomScript(Dice& dice, const Model& model, const CacheConfig& cache, int tokens)
    : dice_(dice), units_{4, 128, cache.swa_page}, tokens_(tokens) {
  for (const LayerKind kind : model.layers) {
    multiple_ = std::max(multiple_, ratio(kind));
    if (kind == LayerKind::csa) {
      units_.insert(units_.end(),
                    {8, 16, 4 * cache.c4_page, 4 * cache.index_page, 4 * model.geometry.index_topk});
    }
    if (kind == LayerKind::hca) units_.insert(units_.end(), {128, 128, 128 * cache.c128_page});
  }
}

std::vector<Event> RandomScript::make(int events) {
  for (int i = 0; i < events; ++i) event(kind());
  return std::move(events_);
}

/// What is possible now, by weight.
RandomScript::Kind RandomScript::kind() {
  using enum Kind;
  std::vector<Kind> kinds;
  const auto may = [&](Kind kind, std::size_t weight, bool possible) {
    kinds.insert(kinds.end(), possible ? weight : 0, kind);
  };
  const auto is_computed = [](const auto& entry) { return !entry.second.filled; };
  const bool room = tokens_ > 0;
  const bool computed = std::ranges::any_of(live_, is_computed);
  const bool few = live_.size() + preempted_.size() < 5;
  may(admit, live_.size() < 2 ? 8 : 2, few && room);
  may(append, 5, !live_.empty() && room);
  may(decode, 6, !live_.empty() && room);
  may(verify, 7, !live_.empty() && room);
  may(batch, 6, room);
  may(free, 1, live_.size() > 1);
  may(keep, 1, computed);
  may(preempt, 2, computed);
  may(resume, 6, !preempted_.empty());
  may(free_preempted, 1, preempted_.size() > 1);
  may(rewind, 4, computed);
  may(prefix_hit, 5, few && !donors().empty());
  may(save, 2, computed);
  may(load, 3, few && !saved_.empty());
  may(evict_window, 2, computed);
  may(evict_kept, 1, !kept_.empty());
  may(poison, 2, !events_.empty());
  may(fill, 1, few);
  may(capture, 2, graphs_.empty());
  may(replay_graph, 5, room && !graphs_.empty());
  return kinds.empty() ? poison : dice_.pick(kinds);
}

void RandomScript::event(Kind kind) {
  std::string name;
  switch (kind) {
    case Kind::admit:
      return add(admit());
    case Kind::append:
      return add(append(any(live_)));
    case Kind::decode:
      return add(decode());
    case Kind::verify:
      return add(verify(any(live_), kMostRows));
    case Kind::batch:
      return add(batch(tokens_, true));
    case Kind::free:
    case Kind::keep: {
      const bool keep = kind == Kind::keep;
      name = any(live_);
      if (keep) computed(name);
      if (keep) kept_[name] = live_[name];
      live_.erase(name);
      freed_.push_back(name);
      return add(Free{at(name), keep});
    }
    case Kind::preempt:
      computed(name);
      preempted_[name] = live_[name];
      live_.erase(name);
      return add(Preempt{at(name)});
    case Kind::resume:
      name = any(preempted_);
      live_[name] = preempted_[name];
      preempted_.erase(name);
      return add(Resume{at(name), chunk(live_[name].length)});
    case Kind::free_preempted:
      name = any(preempted_);
      preempted_.erase(name);
      freed_.push_back(name);
      return add(Free{at(name), false});
    case Kind::rewind: {
      Request& request = computed(name);
      const int back = dice_.once_in(2) ? dice_.between(0, std::min(12, request.length)) : 0;
      request.length = back > 0 ? request.length - back : length_up_to(request.length);
      return add(Rewind{at(name), at(request.length)});
    }
    case Kind::prefix_hit:
      return prefix_hit();
    case Kind::save: {
      const Request& request = computed(name);
      const std::string as = fmt::format("s{}", saved_.size());
      saved_[as] = request;
      return add(Save{at(name), at(as)});
    }
    case Kind::load: {
      const std::string from = any(saved_);
      name = new_name();
      live_[name] = saved_[from];
      return add(Load{at(name), at(from), chunk(live_[name].length)});
    }
    case Kind::evict_window:
      computed(name);
      return add(Evict{at(name), Evict::What::window});
    case Kind::evict_kept:
      name = any(kept_);
      kept_.erase(name);
      return add(Evict{at(name), Evict::What::kept});
    case Kind::poison:
      return add(PoisonMemory{dice_.pick({PoisonMemory::What::freed, PoisonMemory::What::unused}),
                              dice_.pick({PoisonMemory::Value::nan, PoisonMemory::Value::large})});
    case Kind::fill:
      name = new_name();
      live_[name] = {std::max(1, length_up_to(600)), true};
      return add(FillCaches{at(name), at(live_[name].length)});
    case Kind::capture: {
      const std::string as = fmt::format("g{}", graphs_.size());
      graphs_[as] = dice_.between(1, 12);
      return add(Capture{at(as), at(graphs_[as])});
    }
    case Kind::replay_graph:
      return replay_graph();
  }
}

int RandomScript::step_from(int length) {
  if (!dice_.once_in(4)) {
    const int unit = dice_.pick(units_);
    const int target = (length / unit + dice_.between(1, 2)) * unit + dice_.pick({0, 1, -1, 2, 3});
    if (target > length && target - length <= tokens_) return target - length;
  }
  return dice_.between(1, 24);
}

int RandomScript::length_up_to(int longest) {
  int length = dice_.between(0, longest);
  if (dice_.once_in(3)) return length;
  const int unit = dice_.pick(units_);
  length = length / unit * unit + dice_.pick({0, 1, -1, 2, 3});
  return std::clamp(length, 0, longest);
}

int RandomScript::spend(int rows) {
  const int spent = std::clamp(rows, 1, std::max(1, tokens_));
  tokens_ -= spent;
  return spent;
}

std::string RandomScript::new_name() {
  if (!freed_.empty() && dice_.once_in(3)) {
    const std::string name = dice_.pick(freed_);
    std::erase(freed_, name);
    kept_.erase(name);
    return name;
  }
  return fmt::format("r{}", next_++);
}

const std::string& RandomScript::any(const Requests& requests) {
  auto entry = requests.begin();
  std::advance(entry, dice_.below(static_cast<std::uint32_t>(requests.size())));
  return entry->first;
}

RandomScript::Request& RandomScript::computed(std::string& name) {
  std::vector<std::string> names;
  for (const auto& [one, request] : live_) {
    if (!request.filled) names.push_back(one);
  }
  name = dice_.pick(names);
  return live_.at(name);
}

/// Whose prefix a hit may take: requests that are live or kept, long enough, every token of them computed.
std::vector<std::string> RandomScript::donors() const {
  std::vector<std::string> names;
  for (const Requests* const some : {&live_, &kept_}) {
    for (const auto& [name, request] : *some) {
      if (!request.filled && request.length >= multiple_) names.push_back(name);
    }
  }
  return names;
}

std::optional<std::int32_t> RandomScript::chunk(int length) {
  if (length == 0 || dice_.once_in(2)) return std::nullopt;
  return std::max(1, std::min(step_from(0), length));
}

Prefill RandomScript::admit() {
  const std::string name = new_name();
  const int tokens = spend(step_from(0));
  live_[name] = {tokens, false};
  return {at(name), at(tokens)};
}

Prefill RandomScript::append(const std::string& name) {
  Request& request = live_.at(name);
  const int tokens = spend(step_from(request.length));
  request.length += tokens;
  return {at(name), at(tokens)};
}

Verify RandomScript::verify(const std::string& name, int most_rows) {
  const int rows = spend(dice_.between(1, most_rows));
  const int accept = dice_.pick({rows, 0, 1, dice_.between(0, rows)});
  live_.at(name).length += accept;
  return {at(name), at(rows), at(accept)};
}

Decode RandomScript::decode() {
  const std::string first = any(live_);
  Decode decode{{at(first)}, at(dice_.between(1, dice_.once_in(4) ? 20 : 5))};
  for (const auto& [name, request] : live_) {
    if (name != first && dice_.once_in(2)) decode.requests.push_back(at(name));
  }
  for (const At<std::string>& name : decode.requests) {
    live_.at(name.value).length += decode.repeat.value;
    tokens_ -= decode.repeat.value;
  }
  return decode;
}

Batch RandomScript::batch(int rows, bool chunks) {
  Batch batch;
  std::vector<std::string> names;
  for (const auto& [name, request] : live_) names.push_back(name);
  const int parts = dice_.between(1, 5);
  for (int part = 0; part < parts && rows > 0; ++part) {
    const std::uint32_t what = dice_.below(8);
    if (what == 1 && chunks && live_.size() + preempted_.size() < 5) {
      const Prefill& prefill = std::get<Prefill>(batch.parts.emplace_back(admit()));
      rows -= prefill.tokens.value;
    } else if (what == 0 || names.empty()) {
      const Pad& pad = std::get<Pad>(batch.parts.emplace_back(Pad{at(std::min(rows, dice_.between(1, 5)))}));
      rows -= pad.rows.value;
    } else {
      const std::string name = dice_.pick(names);
      std::erase(names, name);
      if (what <= 3) {
        // A graph has few rows, so its chunks are short.
        const int tokens = spend(chunks ? step_from(live_.at(name).length) : dice_.between(1, rows));
        live_.at(name).length += tokens;
        rows -= tokens;
        batch.parts.emplace_back(Prefill{at(name), at(tokens)});
      } else if (what <= 5) {
        rows -=
            std::get<Verify>(batch.parts.emplace_back(verify(name, std::min(rows, kMostRows)))).rows.value;
      } else {
        batch.parts.emplace_back(Decode{{at(name)}, at(1)});
        ++live_.at(name).length;
        --tokens_;
        --rows;
      }
    }
  }
  return batch;
}

void RandomScript::prefix_hit() {
  const std::vector<std::string> names = donors();
  const std::string from = dice_.pick(names);
  const auto donor = live_.find(from);
  const int most = (donor != live_.end() ? donor->second : kept_.at(from)).length / multiple_;
  const int tokens = multiple_ * (dice_.once_in(2) ? dice_.between(1, most) : most);
  const std::string name = new_name();
  live_[name] = {tokens, false};
  add(HitPrefix{at(name), at(from), at(tokens)});
}

void RandomScript::replay_graph() {
  const auto& [name, rows] = *graphs_.begin();
  add(ReplayGraph{at(name), batch(rows, false)});
}

}  // namespace dsv4::scenario
