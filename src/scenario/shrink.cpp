#include "scenario/shrink.hpp"

#include <algorithm>
#include <set>

#include "model/error.hpp"
#include "scenario/plan.hpp"
#include "scenario/simplify.hpp"
#include "scenario/write_yaml.hpp"

namespace dsv4::scenario {
namespace {

using Steps = std::vector<Event>;

/// The search: the smallest scenario so far, and what was tried.
class Search {
 public:
  Search(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails,
         const std::function<bool()>& stop)
      : fails_(fails), stop_(stop), current_(scenario) {}

  Shrunk run() {
    for (bool changed = true; changed && !stopped_;) {
      changed = options();
      changed |= requests();
      changed |= runs_of_steps();
      changed |= pairs_of_steps();
      changed |= simpler();
      changed |= merged();
      changed |= numbers();
    }
    current_ = parse_scenario(write_yaml(current_), current_.file);
    return {std::move(current_), tried_, !stopped_};
  }

 private:
  /// Takes the candidate if it fails as well.
  bool take(const Scenario& candidate) {
    if (stopped_ || candidate.steps.empty()) return false;
    const std::string text = write_yaml(candidate);
    if (!seen_.insert(text).second) return false;
    stopped_ = stop_();
    if (stopped_) return false;
    try {
      Scenario parsed = parse_scenario(text, current_.file);
      plan(parsed);
      ++tried_;
      if (!fails_(parsed)) return false;
      current_ = std::move(parsed);
      return true;
    } catch (const UsageError&) {
      return false;  // impossible: an event lacks what it needs
    }
  }
  bool take(Steps steps) {
    Scenario candidate = current_;
    candidate.steps = std::move(steps);
    return take(candidate);
  }

  bool options() {
    bool changed = false;
    for (bool again = true; again && !stopped_;) {
      again = false;
      for (const Scenario& simpler : simpler_options(current_)) {
        if (!take(simpler)) continue;
        again = changed = true;
        break;
      }
    }
    return changed;
  }

  /// Without a request and all that comes of it.
  bool requests() {
    bool changed = false;
    std::set<std::string> names;
    for (const Event& event : current_.steps) names.merge(names_in(event));
    for (const std::string& name : names) {
      std::set<std::string> gone{name};
      Steps kept;
      for (const Event& event : current_.steps) {
        const std::set<std::string> used = names_in(event);
        const bool touched =
            std::ranges::any_of(used, [&](const std::string& one) { return gone.contains(one); });
        if (!touched) {
          kept.push_back(event);
          continue;
        }
        const std::string made = made_from_others(event);
        if (!made.empty()) gone.insert(made);
        // Of a mixed step the shares of others stay.
        if (std::optional<Event> rest = without(event, gone)) kept.push_back(std::move(*rest));
      }
      changed |= take(std::move(kept));
    }
    return changed;
  }

  static bool names_any(const BatchPart& part, const std::set<std::string>& gone) {
    if (const auto* prefill = std::get_if<Prefill>(&part)) return gone.contains(prefill->request.value);
    if (const auto* verify = std::get_if<Verify>(&part)) return gone.contains(verify->request.value);
    const auto* decode = std::get_if<Decode>(&part);
    return decode != nullptr && decode->requests.empty();
  }

  /// An event without the shares of some requests; nothing if it has no others.
  static std::optional<Event> without(const Event& event, const std::set<std::string>& gone) {
    const auto fewer = [&](Decode& decode) {
      std::erase_if(decode.requests, [&](const At<std::string>& name) { return gone.contains(name.value); });
    };
    Event rest = event;
    if (auto* decode = std::get_if<Decode>(&rest.body)) {
      fewer(*decode);
      return decode->requests.empty() ? std::nullopt : std::optional(rest);
    }
    auto* batch = std::get_if<Batch>(&rest.body);
    if (auto* graph = std::get_if<ReplayGraph>(&rest.body)) batch = &graph->batch;
    if (batch == nullptr) return std::nullopt;
    for (BatchPart& part : batch->parts) {
      if (auto* decode = std::get_if<Decode>(&part)) fewer(*decode);
    }
    std::erase_if(batch->parts, [&](const BatchPart& part) { return names_any(part, gone); });
    return batch->parts.empty() ? std::nullopt : std::optional(rest);
  }

  /// Half of the steps, a quarter, ... single ones; from the end, where most follow from earlier ones.
  bool runs_of_steps() {
    bool changed = false;
    for (std::size_t size = std::max<std::size_t>(1, current_.steps.size() / 2); size > 0 && !stopped_;
         size /= 2) {
      for (std::size_t end = current_.steps.size(); end > 0;) {
        const std::size_t begin = end > size ? end - size : 0;
        Steps kept = current_.steps;
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(begin),
                   kept.begin() + static_cast<std::ptrdiff_t>(end));
        changed |= take(std::move(kept));
        end = begin;
      }
    }
    return changed;
  }

  /// Two steps that need each other: preempt and resume, save and load.
  bool pairs_of_steps() {
    bool changed = false;
    for (std::size_t first = 0; first < current_.steps.size(); ++first) {
      for (std::size_t second = first + 1; second < current_.steps.size() && !stopped_; ++second) {
        Steps kept = current_.steps;
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(second));
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(first));
        if (!take(std::move(kept))) continue;
        changed = true;
        second = first;  // others have moved up
      }
    }
    return changed;
  }

  /// Tries the variants of each event until none is taken.
  template <class Variants>
  bool variants(const Variants& variants) {
    bool changed = false;
    for (std::size_t i = current_.steps.size(); i-- > 0 && !stopped_;) {
      for (bool again = true; again && !stopped_;) {
        again = false;
        for (Event& variant : variants(current_.steps[i])) {
          Steps steps = current_.steps;
          steps[i] = std::move(variant);
          if (!take(std::move(steps))) continue;
          again = changed = true;
          break;
        }
      }
    }
    return changed;
  }
  bool simpler() { return variants(simpler_events); }
  bool numbers() { return variants(smaller_events); }

  /// Tokens that a request gets in two events, in one chunk.
  bool merged() {
    bool changed = false;
    for (std::size_t i = 0; i < current_.steps.size() && !stopped_; ++i) {
      std::string request;
      const std::int32_t tokens = appended_tokens(current_.steps[i], request);
      if (tokens == 0) continue;
      for (std::size_t next = i + 1; next < current_.steps.size(); ++next) {
        if (!names_in(current_.steps[next]).contains(request)) continue;
        std::string other;
        const std::int32_t more = appended_tokens(current_.steps[next], other);
        if (more == 0) break;
        Steps steps = current_.steps;
        steps[i].body = Prefill{{request, {}}, {tokens + more, {}}};
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(next));
        if (take(std::move(steps))) {
          changed = true;
          --i;
        }
        break;
      }
    }
    return changed;
  }

  const std::function<bool(const Scenario&)>& fails_;
  const std::function<bool()>& stop_;
  Scenario current_;
  std::set<std::string> seen_;
  std::int64_t tried_ = 0;
  bool stopped_ = false;
};

}  // namespace

Shrunk shrink(const Scenario& scenario, const std::function<bool(const Scenario&)>& fails,
              const std::function<bool()>& stop) {
  require(scenario.sweep.empty(), "a sweep is expanded before it is shrunk");
  return Search(scenario, fails, stop).run();
}

}  // namespace dsv4::scenario
