#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::int32_t kMaxRows = 1 << 20;
constexpr std::int32_t kMaxVerifyRows = 1024;
constexpr std::int32_t kMaxRepeat = 1 << 20;

/// One reader for each kind of event.
class StepReader {
 public:
  explicit StepReader(const YamlReader& reader) : reader_(reader) {}

  Event event(const YamlNode& node) const {
    const auto& [key, value] = single(node, "a step");
    const std::string& kind = key.text;
    const Mark mark = key.mark;
    if (kind == "prefill") return {mark, prefill(value)};
    if (kind == "decode") return {mark, decode(value)};
    if (kind == "verify") return {mark, verify(value)};
    if (kind == "batch") return {mark, batch(value)};
    if (kind == "free") return {mark, free(value)};
    if (kind == "preempt") return {mark, Preempt{request_of(value, "preempt")}};
    if (kind == "resume") return {mark, resume(value)};
    if (kind == "rewind") return {mark, rewind(value)};
    if (kind == "prefix_hit") return {mark, prefix_hit(value)};
    if (kind == "save") return {mark, save(value)};
    if (kind == "load") return {mark, load(value)};
    if (kind == "evict") return {mark, evict(value)};
    if (kind == "poison") return {mark, poison(value)};
    if (kind == "fill") return {mark, fill(value)};
    if (kind == "capture") return {mark, capture(value)};
    if (kind == "replay_graph") return {mark, replay_graph(value)};
    reader_.fail(
        mark, fmt::format("unknown event '{}' (known: prefill, decode, verify, batch, free, preempt, resume, "
                          "rewind, prefix_hit, save, load, evict, poison, fill, capture, replay_graph)",
                          kind));
  }

 private:
  const YamlEntry& single(const YamlNode& node, std::string_view what) const {
    reader_.expect_map(node, what);
    if (node.entries.size() != 1) {
      reader_.fail(node.mark, fmt::format("{} holds exactly one event, not {}", what, node.entries.size()));
    }
    return node.entries.front();
  }

  At<std::int32_t> at_int(const YamlNode& node, std::string_view what, std::int32_t lowest,
                          std::int32_t highest) const {
    return {reader_.int32(node, what, lowest, highest), node.mark};
  }

  /// `free: a` or `free: {request: a}`.
  At<std::string> request_of(const YamlNode& node, std::string_view what) const {
    if (node.kind != YamlNode::Kind::map) return reader_.name(node, "request");
    return reader_.name(MapReader(reader_, node, what, {"request"}).required("request"), "request");
  }

  Prefill prefill(const YamlNode& node) const {
    const MapReader map(reader_, node, "prefill", {"request", "tokens"});
    return {reader_.name(map.required("request"), "request"),
            at_int(map.required("tokens"), "tokens", 1, kMaxTokens)};
  }

  Decode decode(const YamlNode& node) const {
    const MapReader map(reader_, node, "decode", {"requests", "repeat"});
    Decode decode;
    for (const YamlNode& item : reader_.list(map.required("requests"), "requests")) {
      At<std::string> name = reader_.name(item, "request");
      for (const At<std::string>& other : decode.requests) {
        if (other.value == name.value)
          reader_.fail(name.mark, fmt::format("request {} is listed twice", name.value));
      }
      decode.requests.push_back(std::move(name));
    }
    if (decode.requests.empty()) reader_.fail(map.required("requests").mark, "requests is empty");
    if (const YamlNode* repeat = map.optional("repeat"))
      decode.repeat = at_int(*repeat, "repeat", 1, kMaxRepeat);
    return decode;
  }

  Verify verify(const YamlNode& node) const {
    const MapReader map(reader_, node, "verify", {"request", "rows", "accept"});
    Verify verify{reader_.name(map.required("request"), "request"),
                  at_int(map.required("rows"), "rows", 1, kMaxVerifyRows),
                  {}};
    const YamlNode& accept = map.required("accept");
    verify.accept = at_int(accept, "accept", 0, kMaxVerifyRows);
    if (verify.accept.value > verify.rows.value) {
      reader_.fail(accept.mark, fmt::format("accept must be at most rows, {}, not {}", verify.rows.value,
                                            verify.accept.value));
    }
    return verify;
  }

  Batch batch(const YamlNode& node) const {
    Batch batch;
    for (const YamlNode& item : reader_.list(node, "batch")) {
      const auto& [key, value] = single(item, "a part of a batch");
      if (key.text == "prefill") {
        batch.parts.emplace_back(prefill(value));
      } else if (key.text == "decode") {
        Decode part = decode(value);
        if (part.repeat.value != 1)
          reader_.fail(part.repeat.mark, "repeat is not allowed in a batch, which is one step");
        batch.parts.emplace_back(std::move(part));
      } else if (key.text == "verify") {
        batch.parts.emplace_back(verify(value));
      } else if (key.text == "pad") {
        batch.parts.emplace_back(Pad{at_int(value, "pad", 1, kMaxRows)});
      } else {
        reader_.fail(key.mark,
                     fmt::format("a batch holds prefill, decode, verify and pad, not '{}'", key.text));
      }
    }
    if (batch.parts.empty()) reader_.fail(node.mark, "batch is empty");
    return batch;
  }

  Free free(const YamlNode& node) const {
    if (node.kind != YamlNode::Kind::map) return {reader_.name(node, "request"), false};
    const MapReader map(reader_, node, "free", {"request", "keep"});
    Free free{reader_.name(map.required("request"), "request"), false};
    if (const YamlNode* keep = map.optional("keep")) free.keep = reader_.boolean(*keep, "keep");
    return free;
  }

  std::optional<std::int32_t> chunk_of(const MapReader& map) const {
    const YamlNode* chunk = map.optional("chunk");
    if (chunk == nullptr) return std::nullopt;
    return reader_.int32(*chunk, "chunk", 1, kMaxTokens);
  }

  Resume resume(const YamlNode& node) const {
    if (node.kind != YamlNode::Kind::map) return {reader_.name(node, "request"), std::nullopt};
    const MapReader map(reader_, node, "resume", {"request", "chunk"});
    return {reader_.name(map.required("request"), "request"), chunk_of(map)};
  }

  Rewind rewind(const YamlNode& node) const {
    const MapReader map(reader_, node, "rewind", {"request", "to"});
    return {reader_.name(map.required("request"), "request"),
            at_int(map.required("to"), "to", 0, kMaxTokens)};
  }

  HitPrefix prefix_hit(const YamlNode& node) const {
    const MapReader map(reader_, node, "prefix_hit", {"request", "from", "tokens"});
    return {reader_.name(map.required("request"), "request"), reader_.name(map.required("from"), "from"),
            at_int(map.required("tokens"), "tokens", 1, kMaxTokens)};
  }

  Save save(const YamlNode& node) const {
    const MapReader map(reader_, node, "save", {"request", "as"});
    return {reader_.name(map.required("request"), "request"), reader_.name(map.required("as"), "as")};
  }

  Load load(const YamlNode& node) const {
    const MapReader map(reader_, node, "load", {"request", "from", "chunk"});
    return {reader_.name(map.required("request"), "request"), reader_.name(map.required("from"), "from"),
            chunk_of(map)};
  }

  Evict evict(const YamlNode& node) const {
    const MapReader map(reader_, node, "evict", {"request", "what"});
    return {reader_.name(map.required("request"), "request"),
            static_cast<Evict::What>(reader_.word(map.required("what"), "what", {"window", "kept"}))};
  }

  PoisonMemory poison(const YamlNode& node) const {
    const MapReader map(reader_, node, "poison", {"what", "value"});
    PoisonMemory poison;
    poison.what =
        static_cast<PoisonMemory::What>(reader_.word(map.required("what"), "what", {"freed", "unused"}));
    if (const YamlNode* value = map.optional("value")) {
      poison.value = static_cast<PoisonMemory::Value>(reader_.word(*value, "value", {"nan", "large"}));
    }
    return poison;
  }

  FillCaches fill(const YamlNode& node) const {
    const MapReader map(reader_, node, "fill", {"request", "tokens"});
    return {reader_.name(map.required("request"), "request"),
            at_int(map.required("tokens"), "tokens", 1, kMaxTokens)};
  }

  Capture capture(const YamlNode& node) const {
    const MapReader map(reader_, node, "capture", {"as", "rows"});
    return {reader_.name(map.required("as"), "as"), at_int(map.required("rows"), "rows", 1, kMaxRows)};
  }

  ReplayGraph replay_graph(const YamlNode& node) const {
    const MapReader map(reader_, node, "replay_graph", {"from", "batch"});
    return {reader_.name(map.required("from"), "from"), batch(map.required("batch"))};
  }

  const YamlReader& reader_;
};

void widen(At<std::int32_t>& widest, const Verify& verify) {
  if (verify.rows.value > widest.value) widest = verify.rows;
}

void widen(At<std::int32_t>& widest, const Batch& batch) {
  for (const BatchPart& part : batch.parts) {
    if (const Verify* verify = std::get_if<Verify>(&part)) widen(widest, *verify);
  }
}

}  // namespace

std::vector<Event> parse_steps(const YamlReader& reader, const YamlNode& node) {
  const StepReader steps(reader);
  std::vector<Event> events;
  for (const YamlNode& item : reader.list(node, "steps")) events.push_back(steps.event(item));
  if (events.empty()) reader.fail(node.mark, "steps is empty");
  return events;
}

At<std::int32_t> widest_verify(const std::vector<Event>& steps) {
  At<std::int32_t> widest{1, {}};
  for (const Event& event : steps) {
    if (const Verify* verify = std::get_if<Verify>(&event.body)) widen(widest, *verify);
    if (const Batch* batch = std::get_if<Batch>(&event.body)) widen(widest, *batch);
    if (const ReplayGraph* graph = std::get_if<ReplayGraph>(&event.body)) widen(widest, graph->batch);
  }
  return widest;
}

bool has_verify(const std::vector<Event>& steps) {
  const auto in_batch = [](const Batch& batch) {
    return std::ranges::any_of(batch.parts,
                               [](const BatchPart& part) { return std::holds_alternative<Verify>(part); });
  };
  return std::ranges::any_of(steps, [&](const Event& event) {
    if (const Batch* batch = std::get_if<Batch>(&event.body)) return in_batch(*batch);
    if (const ReplayGraph* graph = std::get_if<ReplayGraph>(&event.body)) return in_batch(graph->batch);
    return std::holds_alternative<Verify>(event.body);
  });
}

}  // namespace dsv4::scenario
