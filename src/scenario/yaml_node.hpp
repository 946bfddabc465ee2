/// A strict YAML tree. Refused with a place: duplicate keys, anchors, aliases, tags, merge keys, a second
/// document, keys that are not plain words, and whatever yaml-cpp itself rejects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenario/event.hpp"

namespace dsv4::scenario {

/// Throws UsageError "FILE:LINE:COLUMN: message".
[[noreturn]] void fail_at(const std::string& file, Mark mark, const std::string& message);

struct YamlEntry;

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;                ///< scalars
  bool plain = false;              ///< scalars written without quotes
  std::vector<YamlNode> items;     ///< lists
  std::vector<YamlEntry> entries;  ///< maps, in the order of the file

  /// The value of a key, or null.
  const YamlNode* find(std::string_view key) const;
};

/// One entry of a map; the key is a scalar.
struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

/// "a number", "a list" ... for messages; scalars are quoted.
std::string describe(const YamlNode& node);

/// What a message may show of a text: its first `longest` bytes, control characters as '?'.
std::string printable(std::string_view text, std::size_t longest);

/// Refuses zero bytes and whatever is not UTF-8, with the line.
void require_text(std::string_view text, const std::string& file);

/// The single document of a text; an empty text is an error.
YamlNode parse_yaml(std::string_view text, const std::string& file);

}  // namespace dsv4::scenario
