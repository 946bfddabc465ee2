#include <fmt/format.h>

#include "model/config_check.hpp"
#include "model/error.hpp"
#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

/// `auto` or `{pool: N, first: F}`.
void take_pages(const YamlReader& reader, const YamlNode& node, CacheConfig& cache) {
  if (node.kind != YamlNode::Kind::map) {
    reader.word(node, "pages", {"auto"});
    return;
  }
  const MapReader map(reader, node, "pages", {"pool", "first"});
  cache.pool_pages = reader.integer(map.required("pool"), "pool", 1, kMaxPoolPages);
  const YamlNode* first = map.optional("first");
  if (first == nullptr) return;
  cache.first_page =
      reader.int32(*first, "first", 1, static_cast<std::int32_t>(*cache.pool_pages));
}

std::int64_t pitch_of(const YamlReader& reader, const YamlNode& node, const CacheConfig& cache) {
  const std::int64_t pitch = reader.integer(node, "pitch", 1, kMaxPitch);
  if (const std::string fault = pitch_fault(cache, pitch); !fault.empty()) {
    reader.fail(node.mark, fmt::format("pitch {}, not {}", fault, pitch));
  }
  return pitch;
}

}  // namespace

CacheConfig parse_cache(const YamlReader& reader, const YamlNode& node, bool& draft_given) {
  const MapReader map(reader, node, "cache",
                      {"swa_page", "c4_page", "c128_page", "index_page", "pages", "c4_state", "c128_state",
                       "draft", "allocate", "poison_freed", "swa_release", "pitch"});
  CacheConfig cache;
  const auto page = [&](std::string_view key, int& rows) {
    if (const YamlNode* value = map.optional(key)) rows = reader.int32(*value, key, 1, kMaxPageRows);
  };
  page("swa_page", cache.swa_page);
  page("c4_page", cache.c4_page);
  page("c128_page", cache.c128_page);
  page("index_page", cache.index_page);
  if (const YamlNode* pages = map.optional("pages")) take_pages(reader, *pages, cache);
  if (const YamlNode* state = map.optional("c4_state")) {
    cache.c4_state = static_cast<C4State>(reader.word(*state, "c4_state", {"ring", "paged", "page4align"}));
  }
  if (const YamlNode* state = map.optional("c128_state")) {
    cache.c128_state = static_cast<C128State>(reader.word(*state, "c128_state", {"ring", "paged", "online"}));
  }
  draft_given = map.optional("draft") != nullptr;
  if (draft_given) cache.draft_rows = reader.int32(*map.optional("draft"), "draft", 1, kMaxDraftRows);
  if (const YamlNode* allocate = map.optional("allocate")) {
    cache.allocate =
        static_cast<Allocate>(reader.word(*allocate, "allocate", {"sequential", "shuffled", "lifo"}));
  }
  if (cache.first_page && cache.allocate == Allocate::shuffled) {
    reader.fail(map.optional("pages")->mark, "pages takes first only where pages are not shuffled");
  }
  if (const YamlNode* poison = map.optional("poison_freed")) {
    cache.poison_freed = reader.boolean(*poison, "poison_freed");
  }
  if (const YamlNode* release = map.optional("swa_release")) {
    cache.swa_release = static_cast<SwaRelease>(reader.word(*release, "swa_release", {"eager", "never"}));
  }
  if (const YamlNode* pitch = map.optional("pitch")) cache.pitch = pitch_of(reader, *pitch, cache);
  return cache;
}

Profile parse_profile(const YamlReader& reader, const YamlNode& node) {
  const auto named = [&](const YamlNode& name) {
    try {
      return profile_named(reader.text(name, "profile"));
    } catch (const UsageError& error) {
      reader.fail(name.mark, error.what());
    }
  };
  if (node.kind != YamlNode::Kind::map) return named(node);
  Profile profile;
  if (const YamlNode* base = node.find("base")) profile = named(*base);
  const std::string base_name = profile.name;
  for (const auto& [key, value] : node.entries) {
    if (key.text == "base") continue;
    try {
      profile.set(key.text, reader.text(value, key.text));
    } catch (const UsageError& error) {
      const std::string message = error.what();
      if (message.starts_with(reader.file() + ":")) throw;
      reader.fail(message.starts_with("unknown axis") ? key.mark : value.mark, message);
    }
    profile.name += fmt::format("{}{}={}", profile.name == base_name ? "+" : ",", key.text, value.text);
  }
  return profile;
}

}  // namespace dsv4::scenario
