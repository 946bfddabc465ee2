/// The events of a scenario, as written: one struct an event, every value with its place in the file so that
/// the planner can point at it (docs/scenarios.md, events).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dsv4::scenario {

/// A place in the scenario's text, counted from 1; line 0: unknown.
struct Mark {
  int line = 0;
  int column = 0;
};

/// A value and where it stands.
template <class T>
struct At {
  T value{};
  Mark mark;
};

/// Appends `tokens` tokens; admits the request on first use.
struct Prefill {
  At<std::string> request;
  At<std::int32_t> tokens;
};

/// One token for each request, `repeat` times (one step each; 1 inside a batch).
struct Decode {
  std::vector<At<std::string>> requests;
  At<std::int32_t> repeat{1, {}};
};

/// `rows` rows in one step, of which the first `accept` are committed.
struct Verify {
  At<std::string> request;
  At<std::int32_t> rows;
  At<std::int32_t> accept;
};

/// Padding rows.
struct Pad {
  At<std::int32_t> rows;
};

using BatchPart = std::variant<Prefill, Decode, Verify, Pad>;

/// One mixed step; row order is the order of the parts.
struct Batch {
  std::vector<BatchPart> parts;
};

/// Gives everything back. `keep` leaves the compressed and index pages as a donor of later prefix hits; they
/// stay until the same name is freed again, evicted (`what: kept`) or admitted again.
struct Free {
  At<std::string> request;
  bool keep = false;
};

/// Drops all device state; length and content ids stay.
struct Preempt {
  At<std::string> request;
};

/// Recomputes a preempted request, `chunk` tokens a step (one step without it).
struct Resume {
  At<std::string> request;
  std::optional<std::int32_t> chunk;
};

/// Cuts a request back to length `to`.
struct Rewind {
  At<std::string> request;
  At<std::int32_t> to;
};

/// Admits `request` with the first `tokens` tokens of `from`.
struct HitPrefix {
  At<std::string> request;
  At<std::string> from;
  At<std::int32_t> tokens;
};

/// Keeps the committed identity of a request (length, content ids) under a snapshot name.
struct Save {
  At<std::string> request;
  At<std::string> as;
};

/// Admits `request` with the identity of a snapshot and recomputes its state, `chunk` tokens a step.
struct Load {
  At<std::string> request;
  At<std::string> from;
  std::optional<std::int32_t> chunk;
};

/// Drops the window pages of a live request (restored before its next step), or the pages a freed one kept.
struct Evict {
  enum class What : std::uint8_t { window, kept };
  At<std::string> request;
  What what = What::window;
};

/// Overwrites pages and state bases that nobody holds.
struct PoisonMemory {
  enum class What : std::uint8_t { freed, unused };
  enum class Value : std::uint8_t { nan, large };
  What what = What::freed;
  Value value = Value::nan;
};

/// Admits a request with synthetic caches for `tokens` tokens.
struct FillCaches {
  At<std::string> request;
  At<std::int32_t> tokens;
};

/// Captures a graph for batches of `rows` rows.
struct Capture {
  At<std::string> as;
  At<std::int32_t> rows;
};

/// Runs a batch through a captured graph, padded to its rows.
struct ReplayGraph {
  At<std::string> from;
  Batch batch;
};

using EventBody = std::variant<Prefill, Decode, Verify, Batch, Free, Preempt, Resume, Rewind, HitPrefix, Save,
                               Load, Evict, PoisonMemory, FillCaches, Capture, ReplayGraph>;

struct Event {
  Mark mark;
  EventBody body;
};

}  // namespace dsv4::scenario
