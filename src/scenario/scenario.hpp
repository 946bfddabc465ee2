/// A scenario: a scripted token stream in YAML, checked strictly (docs/scenarios.md).
///
/// Errors of content are UsageErrors "FILE:LINE:COLUMN: message" that name the value; a file that cannot be
/// read, or a config.json that cannot be trusted, is a FileError. Duplicate keys, anchors, aliases, tags,
/// merge keys, second documents, unknown keys and anything but decimal integers are refused.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config_check.hpp"
#include "model/step_plan.hpp"
#include "scenario/event.hpp"

namespace dsv4::scenario {

/// `model:`
struct Model {
  Geometry geometry;
  std::vector<LayerKind> layers;
  bool chain = false;
  std::string config_path;             ///< of `config:`, resolved against the scenario's folder; else empty
  std::vector<int> checkpoint_layers;  ///< for each layer of the run its number in a checkpoint
};

/// `expect:`
struct Expect {
  std::vector<std::string> covers;  ///< names of the coverage catalogue
  std::string same_as;              ///< "" or "sequential"
};

/// `trace:` content of a prompt's tokens, by blocks of hash ids.
struct TracePrompt {
  std::int32_t tokens = 0;           ///< length of the prompt; later tokens are the request's own
  std::vector<std::int64_t> blocks;  ///< position p has the content (blocks[p / block], p mod block)
};
struct Trace {
  std::int32_t block = 512;
  std::map<std::string, TracePrompt, std::less<>> requests;
};

/// A `sweep:` variable with its values, in the order of the file.
struct SweepVariable {
  std::string name;
  std::vector<std::string> values;
};

struct Scenario {
  std::string name;         ///< of `name:` or the file's stem; expanded runs end in "[n=3,s=2]"
  std::string description;  ///< of `description:`, for listings
  std::string fault_class;  ///< of `class:`, one of fault_classes(); may be empty
  std::string file;         ///< as given, for messages
  std::string text;         ///< YAML of this run (an expanded run: with its values in place)
  Model model;
  Profile profile;
  bool profile_given = false;  ///< the scenario has `profile:`; without it any profile may run it
  std::uint64_t seed = 0;
  CacheConfig cache;
  std::vector<Event> steps;
  std::string hidden_path;                 ///< "" = seeded
  std::vector<std::string> weights_paths;  ///< empty = seeded
  std::vector<SeedEdit> seed_edits;        ///< of `seeded:`
  Trace trace;
  Expect expect;
  std::vector<SweepVariable> sweep;  ///< not empty: expand() first
};

/// A kind of fault that a scenario looks for, `class:`.
struct FaultClass {
  std::string_view name;
  std::string_view description;  ///< one line
};
/// In the order of listings.
std::span<const FaultClass> fault_classes();

/// Reads a scenario file. Of a sweep, the values of the first run are in place.
Scenario load_scenario(const std::string& path);
/// The same from text; `file_name` is for messages and relative paths.
Scenario parse_scenario(std::string_view text, const std::string& file_name);

/// The runs of a scenario: itself, or the cartesian product of its sweep, last variable fastest.
std::vector<Scenario> expand(const Scenario& scenario);

/// True for names of requests and snapshots: [a-z][a-z0-9_]*, at most 64 characters.
bool is_request_name(std::string_view text);

}  // namespace dsv4::scenario
