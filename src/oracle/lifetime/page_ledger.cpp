#include "oracle/lifetime/page_ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dsv4::oracle {
namespace {

using Json = nlohmann::json;

bool may_be_shared(Pool pool) {
  return pool == Pool::entries_c4 || pool == Pool::entries_c128 || pool == Pool::index;
}

/// The body of an event of this kind; null if it is another one.
Json event_body(const std::string& event, const char* kind) {
  const Json json = Json::parse(event, nullptr, false);
  return json.is_object() ? json.value(kind, Json()) : Json();
}

std::string text_of(const Json& body, const char* key) {
  if (body.is_string()) return body.get<std::string>();
  return body.is_object() && body.contains(key) && body[key].is_string() ? body[key].get<std::string>() : "";
}

}  // namespace

std::string PageLedger::name_of(std::int32_t request) const {
  const auto index = static_cast<std::size_t>(request);
  return request >= 0 && index < config_.requests.size() ? "request " + config_.requests[index] : "nobody";
}

const PageLedger::Page& PageLedger::page(Pool pool, std::int64_t page) const {
  static const Page never;
  const auto& pages = pages_[static_cast<std::size_t>(pool)];
  const auto found = pages.find(page);
  return found == pages.end() ? never : found->second;
}

const PageLedger::Base& PageLedger::base(std::int64_t base) const {
  static const Base never;
  const auto found = bases_.find(base);
  return found == bases_.end() ? never : found->second;
}

const PageLedger::Request* PageLedger::request(std::int32_t index) const {
  const auto found = requests_.find(index);
  return found == requests_.end() ? nullptr : &found->second;
}

std::int32_t PageLedger::holder_of(Pool pool, std::int64_t page) const {
  for (const auto& [index, request] : requests_) {
    const auto& table = (*request.tables)[static_cast<std::size_t>(pool)];
    if (std::ranges::find(table, page) != table.end()) return index;
  }
  return -1;
}

void PageLedger::begin(const StepPlan& plan) {
  errors_.clear();
  for (const PageRef& ref : plan.allocated) {
    Page& page = pages_[static_cast<std::size_t>(ref.pool)][ref.page];
    if (page.held) {
      errors_.push_back(
          {"page_handed_out_twice", ref.pool, ref.page, holder_of(ref.pool, ref.page),
           fmt::format("page {} of pool {} is handed out although it has been held since step {}", ref.page,
                       name(ref.pool), page.since)});
    }
    page.held = true;
    page.since = plan.index;
  }
  for (const RequestStep& step : plan.requests) hold(step.request, step.tables, step.state_base, plan.index);
  for (const LiveRequest& live : plan.live) {
    const Request* known = request(live.request);
    if (known == nullptr || known->base != live.state_base)
      hold(live.request, live.tables, live.state_base, plan.index);
  }
}

void PageLedger::hold(std::int32_t index, const std::shared_ptr<const BlockTables>& tables, std::int32_t base,
                      std::int64_t step) {
  Request& request = requests_[index];
  request.kept = false;
  if (request.base != base) {
    Base& taken = bases_[base];
    if (taken.request >= 0 && taken.request != index) {
      errors_.push_back({"base_handed_out_twice", Pool{}, base, taken.request,
                         fmt::format("state base {} is given to {} although {} holds it", base,
                                     name_of(index), name_of(taken.request))});
    }
    taken.request = index;
    taken.since = step;
    request.base = base;
  }
  if (request.tables == tables) return;
  static const BlockTables none;
  const BlockTables& before = request.tables ? *request.tables : none;
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    const auto pool = static_cast<Pool>(i);
    const std::vector<std::int32_t>& old_pages = before[i];
    const std::vector<std::int32_t>& pages = (*tables)[i];
    for (std::size_t item = 0; item < std::max(old_pages.size(), pages.size()); ++item) {
      const std::int32_t left = item < old_pages.size() ? old_pages[item] : -1;
      const std::int32_t taken = item < pages.size() ? pages[item] : -1;
      if (left == taken) continue;
      if (left >= 0) --pages_[i][left].holders;
      if (taken < 0) continue;
      Page& page = pages_[i][taken];
      if (!page.held) {
        errors_.push_back(
            {"page_not_held", pool, taken, index,
             fmt::format("the table of {} names page {} of pool {}, which {}", name_of(index), taken,
                         name(pool),
                         page.until < 0 ? std::string("was never handed out")
                                        : fmt::format("was given back in step {}", page.until))});
      }
      if (++page.holders > 1 && !may_be_shared(pool)) {
        errors_.push_back({"page_of_two", pool, taken, index,
                           fmt::format("the table of {} names page {} of pool {}, which {} holds",
                                       name_of(index), taken, name(pool), name_of(holder_of(pool, taken)))});
      }
    }
  }
  request.tables = tables;
}

void PageLedger::leave(std::int32_t index) {
  const auto found = requests_.find(index);
  for (std::size_t i = 0; i < kPoolCount; ++i) {
    for (const std::int32_t page : (*found->second.tables)[i]) {
      if (page >= 0) --pages_[i][page].holders;
    }
  }
  requests_.erase(found);
}

/// Kept pages stay until the name is freed once more, evicted or admitted again.
void PageLedger::end_keeps(const StepPlan& plan) {
  const auto keeps = [](const auto& item) { return item.second.kept; };
  if (std::ranges::none_of(requests_, keeps)) return;
  std::vector<std::string> ended;
  for (const LiveRequest& live : plan.live)
    ended.push_back(config_.requests.at(static_cast<std::size_t>(live.request)));
  if (plan.kind == StepKind::lifecycle) {
    for (const char* kind : {"free", "evict"})
      ended.push_back(text_of(event_body(plan.event, kind), "request"));
  }
  std::vector<std::int32_t> gone;
  for (const auto& [index, request] : requests_) {
    const std::string& name = config_.requests.at(static_cast<std::size_t>(index));
    if (request.kept && std::ranges::find(ended, name) != ended.end()) gone.push_back(index);
  }
  for (const std::int32_t index : gone) leave(index);
}

void PageLedger::end(const StepPlan& plan) {
  end_keeps(plan);
  std::vector<std::int32_t> gone;
  for (const auto& [index, request] : requests_) {
    const auto same = [index = index](const LiveRequest& live) { return live.request == index; };
    if (!request.kept && std::ranges::none_of(plan.live, same)) gone.push_back(index);
  }
  for (const std::int32_t index : gone) {
    const Json body = event_body(plan.event, "free");
    const bool keep = body.is_object() && body.value("keep", false) &&
                      text_of(body, "request") == config_.requests.at(static_cast<std::size_t>(index));
    if (!keep) {
      leave(index);
      continue;
    }
    auto left = std::make_shared<BlockTables>(*requests_[index].tables);
    for (std::size_t i = 0; i < kPoolCount; ++i) {
      if (!may_be_shared(static_cast<Pool>(i))) (*left)[i].clear();
    }
    hold(index, left, requests_[index].base, plan.index);
    requests_[index].kept = true;
  }
  for (const LiveRequest& live : plan.live) hold(live.request, live.tables, live.state_base, plan.index);
  for (const PageRef& ref : plan.released) {
    Page& page = pages_[static_cast<std::size_t>(ref.pool)][ref.page];
    if (!page.held) {
      errors_.push_back({"page_freed_twice", ref.pool, ref.page, -1,
                         fmt::format("page {} of pool {} is given back although nobody holds it", ref.page,
                                     name(ref.pool))});
    } else if (page.holders > 0) {
      const std::int32_t holder = holder_of(ref.pool, ref.page);
      errors_.push_back({"page_freed_in_use", ref.pool, ref.page, holder,
                         fmt::format("page {} of pool {} is given back although the table of {} names it",
                                     ref.page, name(ref.pool), name_of(holder))});
    }
    page.held = false;
    page.until = plan.index;
  }
  for (const std::int32_t number : plan.released_bases) {
    Base& base = bases_[number];
    base.request = -1;
    base.until = plan.index;
    for (auto& [index, request] : requests_) {
      if (request.base == number && request.kept) request.base = -1;
    }
  }
}

}  // namespace dsv4::oracle
