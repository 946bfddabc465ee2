#include "scenario/write_yaml.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "model/error.hpp"
#include "scenario/event_json.hpp"
#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

using Json = nlohmann::ordered_json;

/// JSON strings are YAML's double-quoted scalars.
std::string quoted(const std::string& text) {
  return Json(text).dump();
}

/// A plain scalar where YAML reads it as the text it is; `null` would be no text.
std::string word(const std::string& text) {
  return text == "null" ? quoted(text) : text;
}

/// Flow style: {request: a, tokens: 37}.
std::string flow(const Json& value) {
  std::vector<std::string> items;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) items.push_back(key + ": " + flow(item));
    return fmt::format("{{{}}}", fmt::join(items, ", "));
  }
  if (value.is_array()) {
    for (const auto& item : value) items.push_back(flow(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  return value.is_string() ? word(value.get<std::string>()) : value.dump();
}

/// The entries of one flow map, in order.
class FlowMap {
 public:
  void add(std::string_view key, std::string_view value) {
    items_.push_back(fmt::format("{}: {}", key, value));
  }
  template <class Value>
  void add_changed(std::string_view key, const Value& value, const Value& standard) {
    if (value != standard) add(key, fmt::format("{}", value));
  }
  bool empty() const { return items_.empty(); }
  std::string text() const { return fmt::format("{{{}}}", fmt::join(items_, ", ")); }

 private:
  std::vector<std::string> items_;
};

/// Fields of a geometry that differ from a preset's.
FlowMap changed_fields(const Geometry& geometry, std::string_view preset_name) {
  const Geometry preset = geometry_preset(preset_name);
  FlowMap map;
  map.add("preset", preset_name);
  map.add_changed("dim", geometry.dim, preset.dim);
  map.add_changed("q_lora", geometry.q_lora, preset.q_lora);
  map.add_changed("heads", geometry.heads, preset.heads);
  map.add_changed("o_groups", geometry.o_groups, preset.o_groups);
  map.add_changed("o_lora", geometry.o_lora, preset.o_lora);
  map.add_changed("index_heads", geometry.index_heads, preset.index_heads);
  map.add_changed("index_topk", geometry.index_topk, preset.index_topk);
  map.add_changed("eps", double{geometry.eps}, double{preset.eps});
  map.add_changed("rope_theta", geometry.rope_theta, preset.rope_theta);
  map.add_changed("compress_rope_theta", geometry.compress_rope_theta, preset.compress_rope_theta);
  map.add_changed("yarn_factor", geometry.yarn_factor, preset.yarn_factor);
  map.add_changed("yarn_original", geometry.yarn_original, preset.yarn_original);
  map.add_changed("beta_fast", geometry.beta_fast, preset.beta_fast);
  map.add_changed("beta_slow", geometry.beta_slow, preset.beta_slow);
  return map;
}

std::string model_text(const Model& model) {
  FlowMap map;
  std::string shortest;
  for (const std::string_view preset : geometry_presets()) {
    const FlowMap fields = changed_fields(model.geometry, preset);
    if (!shortest.empty() && fields.text().size() >= shortest.size()) continue;
    shortest = fields.text();
    map = fields;
  }
  std::vector<std::string_view> kinds;
  for (const LayerKind kind : model.layers) kinds.push_back(name(kind));
  map.add("layers", fmt::format("[{}]", fmt::join(kinds, ", ")));
  std::vector<int> numbers(model.layers.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  if (model.checkpoint_layers != numbers) {
    map.add("layer", fmt::format("[{}]", fmt::join(model.checkpoint_layers, ", ")));
  }
  map.add_changed("chain", model.chain, false);
  return map.text();
}

/// A profile's name states its base and, behind '+', the axes that a scenario set; axes that were set without
/// a name follow.
std::string profile_text(const Profile& profile) {
  const std::string base_name = profile.name.substr(0, profile.name.find('+'));
  const Profile base = profile_named(base_name);
  FlowMap map;
  map.add("base", base_name);
  std::vector<std::string_view> stated;
  std::string_view rest = profile.name;
  rest.remove_prefix(std::min(rest.size(), base_name.size() + 1));
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    stated.push_back(item.substr(0, equals));
    map.add(stated.back(), item.substr(equals + 1));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
  bool plain = stated.empty();
  for (const AxisInfo& axis : axes()) {
    if (std::ranges::find(stated, axis.name) != stated.end()) continue;
    if (profile.value(axis.axis) == base.value(axis.axis)) continue;
    map.add(axis.name, profile.value(axis.axis));
    plain = false;
  }
  return plain ? base_name : map.text();
}

template <std::size_t N>
void add_choice(FlowMap& map, std::string_view key, std::size_t value,
                const std::array<std::string_view, N>& words) {
  if (value != 0) map.add(key, words.at(value));
}

std::string cache_text(const CacheConfig& cache, std::int32_t widest) {
  const CacheConfig standard;
  FlowMap map;
  map.add_changed("swa_page", cache.swa_page, standard.swa_page);
  map.add_changed("c4_page", cache.c4_page, standard.c4_page);
  map.add_changed("c128_page", cache.c128_page, standard.c128_page);
  map.add_changed("index_page", cache.index_page, standard.index_page);
  if (cache.pool_pages) {
    FlowMap pages;
    pages.add("pool", std::to_string(*cache.pool_pages));
    if (cache.first_page) pages.add("first", std::to_string(*cache.first_page));
    map.add("pages", pages.text());
  }
  add_choice<3>(map, "c4_state", static_cast<std::size_t>(cache.c4_state), {"ring", "paged", "page4align"});
  add_choice<3>(map, "c128_state", static_cast<std::size_t>(cache.c128_state), {"ring", "paged", "online"});
  map.add_changed("draft", cache.draft_rows, static_cast<int>(widest));
  add_choice<3>(map, "allocate", static_cast<std::size_t>(cache.allocate),
                {"sequential", "shuffled", "lifo"});
  map.add_changed("poison_freed", cache.poison_freed, false);
  add_choice<2>(map, "swa_release", static_cast<std::size_t>(cache.swa_release), {"eager", "never"});
  if (cache.pitch) map.add("pitch", std::to_string(*cache.pitch));
  return map.empty() ? "" : map.text();
}

std::string seeded_text(const std::vector<SeedEdit>& edits) {
  std::string text = "seeded:\n";
  for (const SeedEdit& edit : edits) {
    FlowMap map;
    map.add("tensor", edit.tensor);
    if (edit.layer) map.add("layer", std::to_string(*edit.layer));
    if (!edit.rows.empty()) map.add("rows", fmt::format("[{}]", fmt::join(edit.rows, ", ")));
    if (!edit.columns.empty()) map.add("columns", fmt::format("[{}]", fmt::join(edit.columns, ", ")));
    if (edit.value) {
      map.add("value", fmt::format("{}", *edit.value));  // "inf" and "-inf" as the reader takes them
    } else {
      map.add("scale", std::to_string(edit.scale));
    }
    text += "  - " + map.text() + "\n";
  }
  return text;
}

std::string absolute(const std::string& path) {
  return quoted(std::filesystem::absolute(path).lexically_normal().string());
}

std::string expect_text(const Expect& expect) {
  FlowMap map;
  if (!expect.covers.empty()) map.add("covers", fmt::format("[{}]", fmt::join(expect.covers, ", ")));
  if (!expect.same_as.empty()) map.add("same_as", expect.same_as);
  return map.empty() ? "" : map.text();
}

std::string trace_text(const Trace& trace) {
  std::string text = fmt::format("trace:\n  block: {}\n  requests:\n", trace.block);
  for (const auto& [request, prompt] : trace.requests) {
    text += fmt::format("    {}: {{tokens: {}, blocks: [{}]}}\n", word(request), prompt.tokens,
                        fmt::join(prompt.blocks, ", "));
  }
  return text;
}

}  // namespace

std::string write_event(const Event& event) {
  Json body = event_json(event.body);
  const Decode* const decode = std::get_if<Decode>(&event.body);
  if (decode != nullptr && decode->repeat.value > 1) body["decode"]["repeat"] = decode->repeat.value;
  const auto entry = body.items().begin();
  return entry.key() + ": " + flow(entry.value());
}

std::string write_yaml(const Scenario& scenario) {
  require(scenario.sweep.empty(), "a sweep is expanded before it is written");
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}: {}\n", key, value);
  };
  line("name", scenario.name.empty() ? "" : quoted(scenario.name));
  line("description", scenario.description.empty() ? "" : quoted(scenario.description));
  line("class", scenario.fault_class);
  line("model", model_text(scenario.model));
  line("profile", scenario.profile_given ? profile_text(scenario.profile) : "");
  line("seed", scenario.seed == 0 ? "" : std::to_string(scenario.seed));
  if (!scenario.seed_edits.empty()) text += seeded_text(scenario.seed_edits);
  line("cache", cache_text(scenario.cache, widest_verify(scenario.steps).value));
  line("hidden", scenario.hidden_path.empty() ? "" : absolute(scenario.hidden_path));
  std::vector<std::string> weights;
  for (const std::string& path : scenario.weights_paths) weights.push_back(absolute(path));
  line("weights", weights.empty() ? "" : fmt::format("[{}]", fmt::join(weights, ", ")));
  if (!scenario.trace.requests.empty()) text += trace_text(scenario.trace);
  text += "steps:\n";
  for (const Event& event : scenario.steps) text += "  - " + write_event(event) + "\n";
  line("expect", expect_text(scenario.expect));
  return text;
}

}  // namespace dsv4::scenario
