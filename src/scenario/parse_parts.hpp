/// The sections of a scenario, each read from its node of the strict tree. Internal to src/scenario.
#pragma once

#include <string>
#include <vector>

#include "scenario/scenario.hpp"
#include "scenario/yaml_reader.hpp"

namespace dsv4::scenario {

/// `steps:` in order.
std::vector<Event> parse_steps(const YamlReader& reader, const YamlNode& node);

/// `model:`; `null` stands for an absent section (tiny, one layer of each kind).
Model parse_model(const YamlReader& reader, const YamlNode* node);

/// `profile:`
Profile parse_profile(const YamlReader& reader, const YamlNode& node);

/// `cache:` without the default of `draft`; `draft_given` says whether the key was there.
CacheConfig parse_cache(const YamlReader& reader, const YamlNode& node, bool& draft_given);

/// `class:`, one of fault_classes().
std::string parse_class(const YamlReader& reader, const YamlNode& node);

/// `seeded:`, a list of edits; each is checked against the model's layers and shapes.
std::vector<SeedEdit> parse_seed_edits(const YamlReader& reader, const YamlNode& node, const Model& model);

/// A path of the scenario, resolved against the folder of the scenario's file.
std::string resolve_path(const YamlReader& reader, const std::string& path);

/// The largest `rows` of any verify event, at least 1.
At<std::int32_t> widest_verify(const std::vector<Event>& steps);
/// Whether there is a verify event at all.
bool has_verify(const std::vector<Event>& steps);

}  // namespace dsv4::scenario
