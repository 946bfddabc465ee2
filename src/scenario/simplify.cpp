#include "scenario/simplify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scenario/event_json.hpp"
#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

/// Strings of an event as JSON under keys that hold names.
void collect_names(const nlohmann::ordered_json& value, std::set<std::string>& names) {
  for (const auto& [key, item] : value.items()) {
    if (item.is_string() && (key == "request" || key == "from" || key == "as"))
      names.insert(item.get<std::string>());
    if (key == "requests") {
      for (const auto& name : item) names.insert(name.get<std::string>());
    } else if (item.is_structured()) {
      collect_names(item, names);
    }
  }
}

/// A number of an event with the least it may be.
struct Number {
  std::int32_t* value;
  std::int32_t least;
};

class Numbers {
 public:
  void of(Prefill& event) { add(event.tokens, 1); }
  void of(Decode& event) { add(event.repeat, 1); }
  void of(Verify& event) {
    add(event.rows, std::max(1, event.accept.value));
    add(event.accept, 0);
  }
  void of(Pad& event) { add(event.rows, 1); }
  void of(Batch& event) {
    for (BatchPart& part : event.parts) std::visit([this](auto& body) { of(body); }, part);
  }
  void of(Resume& event) { add(event.chunk); }
  void of(Load& event) { add(event.chunk); }
  void of(Rewind& event) { add(event.to, 0); }
  void of(HitPrefix& event) { add(event.tokens, 1); }
  void of(FillCaches& event) { add(event.tokens, 1); }
  void of(Capture& event) { add(event.rows, 1); }
  void of(ReplayGraph& event) { of(event.batch); }
  template <class Other>
  void of(Other&) {}

  std::vector<Number> all;

 private:
  void add(At<std::int32_t>& number, std::int32_t least) { all.push_back({&number.value, least}); }
  void add(std::optional<std::int32_t>& number) {
    if (number) all.push_back({&*number, 1});
  }
};

std::vector<Number> numbers_of(Event& event) {
  Numbers numbers;
  std::visit([&](auto& body) { numbers.of(body); }, event.body);
  return numbers.all;
}

/// Smaller values, smallest first: the least, the same residues of 4 and 128, halfway and back again.
std::vector<std::int32_t> smaller_values(std::int32_t value, std::int32_t least) {
  std::set<std::int32_t> values{least, value % 4, value % 128, value % 128 + 128, value - 128, value - 4};
  for (std::int32_t part = value; part > 0; part /= 2) values.insert(value - part);
  std::erase_if(values, [&](std::int32_t one) { return one < least || one >= value; });
  return {values.begin(), values.end()};
}

void simpler(const Prefill&, std::vector<EventBody>&) {}

void simpler(const Decode& decode, std::vector<EventBody>& out) {
  for (std::size_t i = 0; decode.requests.size() > 1 && i < decode.requests.size(); ++i) {
    Decode fewer = decode;
    fewer.requests.erase(fewer.requests.begin() + static_cast<std::ptrdiff_t>(i));
    out.emplace_back(std::move(fewer));
  }
  if (decode.requests.size() == 1) out.emplace_back(Prefill{decode.requests.front(), decode.repeat});
}

void simpler(const Verify& verify, std::vector<EventBody>& out) {
  out.emplace_back(Prefill{verify.request, verify.rows});
  if (verify.accept.value > 0 && verify.accept.value < verify.rows.value)
    out.emplace_back(Prefill{verify.request, verify.accept});
  for (std::int32_t less = verify.accept.value; less > 0; less /= 2) {
    if (verify.rows.value - less < 1) continue;
    Verify fewer = verify;
    fewer.rows.value -= less;
    fewer.accept.value -= less;
    out.emplace_back(std::move(fewer));
  }
}

void simpler(const Batch& batch, std::vector<EventBody>& out) {
  if (batch.parts.size() == 1) {
    std::visit(
        [&](const auto& part) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(part)>, Pad>) out.emplace_back(part);
        },
        batch.parts.front());
  }
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    if (batch.parts.size() > 1) {
      Batch fewer = batch;
      fewer.parts.erase(fewer.parts.begin() + static_cast<std::ptrdiff_t>(i));
      out.emplace_back(std::move(fewer));
    }
    std::vector<EventBody> alone;
    if (const auto* decode = std::get_if<Decode>(&batch.parts[i])) simpler(*decode, alone);
    if (const auto* verify = std::get_if<Verify>(&batch.parts[i])) simpler(*verify, alone);
    for (const EventBody& body : alone) {
      Batch changed = batch;
      if (const auto* prefill = std::get_if<Prefill>(&body)) changed.parts[i] = *prefill;
      if (const auto* decode = std::get_if<Decode>(&body)) changed.parts[i] = *decode;
      if (const auto* verify = std::get_if<Verify>(&body)) changed.parts[i] = *verify;
      out.emplace_back(std::move(changed));
    }
  }
}

void simpler(const Free& event, std::vector<EventBody>& out) {
  if (event.keep) out.emplace_back(Free{event.request, false});
}

void simpler(const Resume& event, std::vector<EventBody>& out) {
  if (event.chunk) out.emplace_back(Resume{event.request, std::nullopt});
}

void simpler(const Load& event, std::vector<EventBody>& out) {
  if (event.chunk) out.emplace_back(Load{event.request, event.from, std::nullopt});
}

void simpler(const HitPrefix& event, std::vector<EventBody>& out) {
  out.emplace_back(Prefill{event.request, event.tokens});
}

void simpler(const PoisonMemory& event, std::vector<EventBody>& out) {
  if (event.value != PoisonMemory::Value::nan)
    out.emplace_back(PoisonMemory{event.what, PoisonMemory::Value::nan});
}

void simpler(const ReplayGraph& event, std::vector<EventBody>& out) {
  out.emplace_back(event.batch);
  std::vector<EventBody> batches;
  simpler(event.batch, batches);
  for (const EventBody& body : batches) {
    if (const auto* batch = std::get_if<Batch>(&body)) out.emplace_back(ReplayGraph{event.from, *batch});
  }
}

template <class Other>
void simpler(const Other&, std::vector<EventBody>&) {}

/// A profile of the canonical one and some axes of another, named as the parser names it.
Profile canonical_with(const Profile& other, const std::vector<Axis>& kept) {
  Profile profile = profile_named("canonical");
  for (const AxisInfo& axis : axes()) {
    if (std::ranges::find(kept, axis.axis) == kept.end()) continue;
    const std::string_view value = other.value(axis.axis);
    profile.set(axis.name, value);
    const char separator = profile.name.find('+') == std::string::npos ? '+' : ',';
    profile.name += fmt::format("{}{}={}", separator, axis.name, value);
  }
  return profile;
}

void simpler_profiles(const Scenario& scenario, std::vector<Scenario>& out) {
  const Profile canonical = profile_named("canonical");
  if (scenario.profile.exact) return;
  std::vector<Axis> differing;
  for (const AxisInfo& axis : axes()) {
    if (scenario.profile.value(axis.axis) != canonical.value(axis.axis)) differing.push_back(axis.axis);
  }
  const auto add = [&](const std::vector<Axis>& kept) {
    Scenario other = scenario;
    other.profile = canonical_with(scenario.profile, kept);
    other.profile_given = !kept.empty();
    out.push_back(std::move(other));
  };
  if (differing.empty() && !scenario.profile_given) return;
  add({});
  for (std::size_t begin = 0, half = (differing.size() + 1) / 2; half > 0 && begin < differing.size();
       begin += half) {
    std::vector<Axis> kept = differing;
    const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin);
    kept.erase(first, first + static_cast<std::ptrdiff_t>(std::min(half, differing.size() - begin)));
    add(kept);
  }
  for (const Axis axis : differing) {
    std::vector<Axis> kept = differing;
    std::erase(kept, axis);
    add(kept);
  }
}

void simpler_layers(const Scenario& scenario, std::vector<Scenario>& out) {
  const Model& model = scenario.model;
  const auto add = [&](const std::vector<std::size_t>& kept) {
    Scenario other = scenario;
    other.model.layers.clear();
    other.model.checkpoint_layers.clear();
    for (const std::size_t layer : kept) {
      other.model.layers.push_back(model.layers[layer]);
      other.model.checkpoint_layers.push_back(model.checkpoint_layers[layer]);
    }
    if (scenario.weights_paths.empty())
      std::iota(other.model.checkpoint_layers.begin(), other.model.checkpoint_layers.end(), 0);
    other.model.chain = model.chain && kept.size() > 1;
    std::erase_if(other.seed_edits, [&](SeedEdit& edit) {
      if (!edit.layer) return false;
      const auto place = std::ranges::find(kept, static_cast<std::size_t>(*edit.layer));
      if (place == kept.end()) return true;
      edit.layer = static_cast<int>(place - kept.begin());
      return false;
    });
    out.push_back(std::move(other));
  };
  for (std::size_t layer = 0; model.layers.size() > 1 && layer < model.layers.size(); ++layer) add({layer});
  for (std::size_t layer = 0; model.layers.size() > 2 && layer < model.layers.size(); ++layer) {
    std::vector<std::size_t> kept;
    for (std::size_t other = 0; other < model.layers.size(); ++other) {
      if (other != layer) kept.push_back(other);
    }
    add(kept);
  }
}

}  // namespace

std::set<std::string> names_in(const Event& event) {
  std::set<std::string> names;
  collect_names(event_json(event.body), names);
  return names;
}

std::string made_from_others(const Event& event) {
  if (const auto* hit = std::get_if<HitPrefix>(&event.body)) return hit->request.value;
  if (const auto* save = std::get_if<Save>(&event.body)) return save->as.value;
  if (const auto* load = std::get_if<Load>(&event.body)) return load->request.value;
  return {};
}

std::vector<Event> simpler_events(const Event& event) {
  std::vector<EventBody> bodies;
  std::visit([&](const auto& body) { simpler(body, bodies); }, event.body);
  std::vector<Event> events;
  for (EventBody& body : bodies) events.push_back({event.mark, std::move(body)});
  return events;
}

std::vector<Event> smaller_events(const Event& event) {
  std::vector<Event> events;
  Event original = event;
  const std::size_t count = numbers_of(original).size();
  for (std::size_t i = 0; i < count; ++i) {
    const Number number = numbers_of(original)[i];
    for (const std::int32_t value : smaller_values(*number.value, number.least)) {
      Event smaller = event;
      *numbers_of(smaller)[i].value = value;
      events.push_back(std::move(smaller));
    }
  }
  return events;
}

std::int32_t appended_tokens(const Event& event, std::string& request) {
  if (const auto* prefill = std::get_if<Prefill>(&event.body)) {
    request = prefill->request.value;
    return prefill->tokens.value;
  }
  if (const auto* verify = std::get_if<Verify>(&event.body)) {
    request = verify->request.value;
    return verify->accept.value;
  }
  if (const auto* decode = std::get_if<Decode>(&event.body);
      decode != nullptr && decode->requests.size() == 1) {
    request = decode->requests.front().value;
    return decode->repeat.value;
  }
  return 0;
}

std::vector<Scenario> simpler_options(const Scenario& scenario) {
  std::vector<Scenario> out;
  const auto add = [&](const auto& change) {
    Scenario other = scenario;
    change(other);
    out.push_back(std::move(other));
  };
  simpler_layers(scenario, out);
  if (scenario.model.chain) add([](Scenario& s) { s.model.chain = false; });
  if (!scenario.expect.covers.empty() || !scenario.expect.same_as.empty())
    add([](Scenario& s) { s.expect = {}; });
  if (!scenario.description.empty() || !scenario.fault_class.empty()) {
    add([](Scenario& s) {
      s.description.clear();
      s.fault_class.clear();
    });
  }
  if (!scenario.trace.requests.empty()) add([](Scenario& s) { s.trace = {}; });
  simpler_profiles(scenario, out);
  CacheConfig standard;
  standard.draft_rows = widest_verify(scenario.steps).value;
  const auto cache = [&](auto member) {
    if (scenario.cache.*member != standard.*member)
      add([&](Scenario& s) { s.cache.*member = standard.*member; });
  };
  if (scenario.cache != standard) add([&](Scenario& s) { s.cache = standard; });
  cache(&CacheConfig::first_page);
  cache(&CacheConfig::pool_pages);
  cache(&CacheConfig::pitch);
  cache(&CacheConfig::poison_freed);
  cache(&CacheConfig::allocate);
  cache(&CacheConfig::swa_release);
  cache(&CacheConfig::c4_state);
  cache(&CacheConfig::c128_state);
  cache(&CacheConfig::draft_rows);
  cache(&CacheConfig::swa_page);
  cache(&CacheConfig::c4_page);
  cache(&CacheConfig::c128_page);
  cache(&CacheConfig::index_page);
  // Weights of a file have the geometry that they have.
  const Geometry tiny = geometry_preset("tiny");
  const auto field = [&](auto member) {
    if (scenario.model.geometry.*member != tiny.*member)
      add([&](Scenario& s) { s.model.geometry.*member = tiny.*member; });
  };
  if (scenario.weights_paths.empty() && scenario.hidden_path.empty() && scenario.model.geometry != tiny) {
    add([&](Scenario& s) { s.model.geometry = tiny; });
    field(&Geometry::index_topk);
    field(&Geometry::index_heads);
    field(&Geometry::heads);
    field(&Geometry::dim);
    field(&Geometry::q_lora);
    field(&Geometry::o_lora);
  }
  for (std::size_t i = 0; i < scenario.seed_edits.size(); ++i)
    add([&](Scenario& s) { s.seed_edits.erase(s.seed_edits.begin() + static_cast<std::ptrdiff_t>(i)); });
  if (scenario.seed != 0) add([](Scenario& s) { s.seed = 0; });
  return out;
}

}  // namespace dsv4::scenario
