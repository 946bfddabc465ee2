#include "scenario/import_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/error.hpp"
#include "model/profile.hpp"
#include "scenario/read_text.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::int32_t kTraceBlock = 512;

/// A line of the trace, scaled.
struct Arrival {
  std::int32_t prompt = 0;  ///< tokens
  std::int32_t output = 0;
  std::vector<std::int64_t> blocks;

  // As the run goes.
  std::int32_t length = 0;  ///< tokens committed so far
  std::int32_t decoded = 0;
  bool admitted = false;
  std::optional<std::size_t> last_hit;  ///< event in which another request last used it as a donor
  std::optional<std::size_t> freed;     ///< event
};

class LineReader {
 public:
  LineReader(const std::string& file, std::int32_t scale) : file_(file), scale_(scale) {}

  Arrival read(const std::string& line, std::int64_t number) const {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object()) fail(number, "is not a JSON object");
    Arrival arrival;
    integer(json, "timestamp", 0, number);
    const std::int64_t prompt = integer(json, "input_length", 1, number);
    const std::int64_t output = integer(json, "output_length", 0, number);
    const auto ids = json.find("hash_ids");
    if (ids == json.end() || !ids->is_array()) fail(number, "has no list hash_ids");
    for (const auto& id : *ids) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0)
        fail(number, "has a hash id that is no integer >= 0");
      arrival.blocks.push_back(id.get<std::int64_t>());
    }
    const std::int64_t blocks = (prompt + kTraceBlock - 1) / kTraceBlock;
    if (static_cast<std::int64_t>(arrival.blocks.size()) != blocks) {
      fail(number, fmt::format("lists {} hash ids; {} tokens are {} blocks of {}", arrival.blocks.size(),
                               prompt, blocks, kTraceBlock));
    }
    arrival.prompt = scaled(prompt, number);
    arrival.output = scaled(output, number);
    if (arrival.prompt > kMaxTokens - arrival.output) {
      fail(number, fmt::format("has {} tokens, more than {}", std::int64_t{arrival.prompt} + arrival.output,
                               kMaxTokens));
    }
    return arrival;
  }

 private:
  [[noreturn]] void fail(std::int64_t number, const std::string& fault) const {
    throw FileError(fmt::format("{}:{}: the line {}", file_, number, fault));
  }

  std::int64_t integer(const nlohmann::json& json, const char* key, std::int64_t lowest,
                       std::int64_t number) const {
    const auto found = json.find(key);
    if (found == json.end()) fail(number, fmt::format("has no {}", key));
    if (!found->is_number_integer())
      fail(number, fmt::format("has {} {}, which is no integer", key, found->dump()));
    if (found->is_number_unsigned() && found->get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
      fail(number, fmt::format("has {} {}, which is too large", key, found->dump()));
    }
    const auto value = found->get<std::int64_t>();
    if (value < lowest) fail(number, fmt::format("has {} {}, less than {}", key, value, lowest));
    return value;
  }

  /// Rounded up, so that a prompt has as many scaled blocks as hash ids.
  std::int32_t scaled(std::int64_t tokens, std::int64_t number) const {
    const std::int64_t value = (tokens + scale_ - 1) / scale_;
    if (value > kMaxTokens) fail(number, fmt::format("has {} tokens, more than {}", value, kMaxTokens));
    return static_cast<std::int32_t>(value);
  }

  const std::string& file_;
  std::int32_t scale_;
};

/// One event of the scenario: YAML, or a free whose form depends on later hits.
struct Emitted {
  std::string yaml;
  std::vector<std::string> decodes;  ///< requests of a step that only decodes
  std::int32_t repeat = 1;
  std::optional<std::size_t> frees;  ///< arrival
  std::optional<std::size_t> hits;   ///< donor
};

/// First come, first served.
class Scheduler {
 public:
  Scheduler(std::vector<Arrival> arrivals, const TraceOptions& options, std::int32_t block)
      : arrivals_(std::move(arrivals)), options_(options), block_(block) {
    for (const std::string& layer : options.layers) {
      if (layer == "csa") granularity_ = std::max(granularity_, 4);
      if (layer == "hca") granularity_ = 128;
    }
  }

  void run() {
    while (next_ < arrivals_.size() || !running_.empty()) step();
  }

  /// `steps:` lines. A freed request keeps its pages as long as a later hit uses them.
  std::string steps() const {
    std::string text;
    for (std::size_t event = 0; event < events_.size(); ++event) {
      const Emitted& emitted = events_[event];
      if (emitted.frees) {
        const auto& last_hit = arrivals_[*emitted.frees].last_hit;
        const bool keep = last_hit && *last_hit > event;
        const std::string request = name(*emitted.frees);
        text += keep ? fmt::format("  - free: {{request: {}, keep: true}}\n", request)
                     : fmt::format("  - free: {}\n", request);
      } else if (!emitted.decodes.empty()) {
        const std::string repeat = emitted.repeat > 1 ? fmt::format(", repeat: {}", emitted.repeat) : "";
        text += fmt::format("  - decode: {{requests: [{}]{}}}\n", fmt::join(emitted.decodes, ", "), repeat);
      } else {
        text += "  - " + emitted.yaml + "\n";
      }
      // The donor's last use: what it kept goes back.
      if (emitted.hits) {
        const Arrival& donor = arrivals_[*emitted.hits];
        if (donor.last_hit == event && donor.freed && *donor.freed < event) {
          text += fmt::format("  - free: {}\n", name(*emitted.hits));
        }
      }
    }
    return text;
  }

  std::string trace() const {
    std::string text = fmt::format("trace:\n  block: {}\n  requests:\n", block_);
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      text += fmt::format("    {}: {{tokens: {}, blocks: [{}]}}\n", name(i), arrivals_[i].prompt,
                          fmt::join(arrivals_[i].blocks, ", "));
    }
    return text;
  }

  std::int64_t hits() const { return hits_; }

 private:
  static std::string name(std::size_t arrival) { return fmt::format("r{}", arrival); }

  /// Decodes every running request that is past its prompt, then fills up with prefill chunks in order of
  /// arrival.
  void step() {
    while (next_ < arrivals_.size() && running_.size() < static_cast<std::size_t>(options_.max_running)) {
      admit(next_++);
    }
    std::vector<std::size_t> decoding;
    for (const std::size_t i : running_) {
      const Arrival& request = arrivals_[i];
      const bool fits = decoding.size() < static_cast<std::size_t>(options_.max_batch_tokens);
      if (request.length >= request.prompt && request.decoded < request.output && fits) decoding.push_back(i);
    }
    std::int32_t room = options_.max_batch_tokens - static_cast<std::int32_t>(decoding.size());
    std::vector<std::string> parts;
    std::vector<std::string> decoded;
    for (const std::size_t i : decoding) {
      decoded.push_back(name(i));
      ++arrivals_[i].decoded;
      ++arrivals_[i].length;
    }
    for (const std::size_t i : running_) {
      Arrival& request = arrivals_[i];
      if (room == 0 || request.length >= request.prompt) continue;
      const std::int32_t chunk = std::min(room, request.prompt - request.length);
      parts.push_back(fmt::format("prefill: {{request: {}, tokens: {}}}", name(i), chunk));
      request.length += chunk;
      room -= chunk;
    }
    emit(decoded, parts);
    std::erase_if(running_, [&](std::size_t i) {
      const Arrival& request = arrivals_[i];
      const bool done = request.length >= request.prompt && request.decoded >= request.output;
      if (!done) return false;
      arrivals_[i].freed = events_.size();
      events_.emplace_back().frees = i;
      return true;
    });
  }

  /// Steps that only decode the same requests become one event.
  void emit(const std::vector<std::string>& decoded, const std::vector<std::string>& chunks) {
    if (chunks.empty()) {
      if (!events_.empty() && events_.back().decodes == decoded) {
        ++events_.back().repeat;
      } else {
        events_.emplace_back().decodes = decoded;
      }
    } else if (decoded.empty() && chunks.size() == 1) {
      events_.emplace_back().yaml = chunks.front();
    } else {
      std::vector<std::string> parts = chunks;
      if (!decoded.empty()) {
        parts.insert(parts.begin(), fmt::format("decode: {{requests: [{}]}}", fmt::join(decoded, ", ")));
      }
      events_.emplace_back().yaml = fmt::format("batch: [{{{}}}]", fmt::join(parts, "}, {"));
    }
  }

  /// Takes a request in: behind the longest prefix that an earlier one holds, if there is one of a legal
  /// length.
  void admit(std::size_t arrival) {
    Arrival& request = arrivals_[arrival];
    std::int32_t longest = 0;
    std::size_t donor = 0;
    for (std::size_t i = 0; i < arrival; ++i) {
      const std::int32_t hit = legal_hit(arrivals_[i], request);
      if (hit > 0 && hit >= longest) {
        longest = hit;
        donor = i;
      }
    }
    if (longest > 0) {
      arrivals_[donor].last_hit = events_.size();
      Emitted& hit = events_.emplace_back();
      hit.hits = donor;
      hit.yaml = fmt::format("prefix_hit: {{request: {}, from: {}, tokens: {}}}", name(arrival), name(donor),
                             longest);
      request.length = longest;
      ++hits_;
    }
    running_.push_back(arrival);
  }

  /// Common tokens that the donor has stored, cut to the run's largest ratio; one prompt token is left to
  /// compute.
  std::int32_t legal_hit(const Arrival& donor, const Arrival& request) const {
    const auto [end, unused] = std::ranges::mismatch(donor.blocks, request.blocks);
    const auto blocks = static_cast<std::int64_t>(end - donor.blocks.begin());
    const std::int64_t common = std::min({blocks * block_, std::int64_t{donor.length},
                                          std::int64_t{donor.prompt}, std::int64_t{request.prompt} - 1});
    return static_cast<std::int32_t>(common / granularity_ * granularity_);
  }

  std::vector<Arrival> arrivals_;
  const TraceOptions& options_;
  std::int32_t block_;
  std::int32_t granularity_ = 1;
  std::size_t next_ = 0;
  std::int64_t hits_ = 0;
  std::vector<std::size_t> running_;
  std::vector<Emitted> events_;
};

void check_options(const TraceOptions& options) {
  const auto at_least = [](std::string_view what, std::int32_t value, std::int32_t lowest,
                           std::int32_t highest) {
    if (value < lowest || value > highest) {
      throw UsageError(fmt::format("{} must be {} to {}, not {}", what, lowest, highest, value));
    }
  };
  at_least("max-batch-tokens", options.max_batch_tokens, 1, kMaxTokens);
  at_least("max-running", options.max_running, 1, 4096);
  at_least("scale", options.scale, 1, kTraceBlock);
  if ((options.scale & (options.scale - 1)) != 0) {
    throw UsageError(
        fmt::format("scale must be a power of two, not {}: it divides blocks of 512 tokens", options.scale));
  }
  if (options.limit < 0)
    throw UsageError(fmt::format("the number of requests must not be negative: {}", options.limit));
  geometry_preset(options.preset);
  profile_named(options.profile);
  if (options.layers.empty()) throw UsageError("the list of layers is empty");
  for (const std::string& layer : options.layers) {
    if (layer != "swa" && layer != "csa" && layer != "hca") {
      throw UsageError(fmt::format("unknown layer kind '{}' (known: swa, csa, hca)", layer));
    }
  }
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

}  // namespace

std::string import_trace_text(std::string_view text, const std::string& file_name,
                              const TraceOptions& options) {
  check_options(options);
  const LineReader reader(file_name, options.scale);
  std::vector<Arrival> arrivals;
  std::int64_t number = 0;
  while (!text.empty() && (options.limit == 0 || arrivals.size() < static_cast<std::size_t>(options.limit))) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    arrivals.push_back(reader.read(line, number));
  }
  if (arrivals.empty()) throw FileError(file_name + ": the trace has no requests");
  const auto requests = arrivals.size();
  const std::int32_t block = kTraceBlock / options.scale;
  Scheduler scheduler(std::move(arrivals), options, block);
  scheduler.run();
  const std::string source = std::filesystem::path(file_name).filename().string();
  const std::string name =
      options.name.empty() ? std::filesystem::path(file_name).stem().string() : options.name;
  std::string yaml = fmt::format("# Imported from {}: {} requests, {} prefix hits, lengths divided by {}.\n",
                                 quoted(source), requests, scheduler.hits(), options.scale);
  yaml +=
      "# Each step decodes every running request and fills up with prefill chunks, first come, first "
      "served:\n";
  yaml += fmt::format("# at most {} requests at a time, at most {} rows a step.\n", options.max_running,
                      options.max_batch_tokens);
  yaml += fmt::format("name: {}\nmodel: {{preset: {}, layers: [{}]}}\nprofile: {}\n", quoted(name),
                      options.preset, fmt::join(options.layers, ", "), options.profile);
  yaml += "steps:\n" + scheduler.steps();
  yaml +=
      "# Content of the prompts: position p of a request is token p mod block of its hash id number p / "
      "block.\n";
  return yaml + scheduler.trace();
}

std::string import_trace(const std::string& path, const TraceOptions& options) {
  constexpr std::size_t kMaxTraceBytes = std::size_t{1} << 30;
  return import_trace_text(read_text(path, kMaxTraceBytes), path, options);
}

}  // namespace dsv4::scenario
