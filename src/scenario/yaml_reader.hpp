/// Typed reading of a YAML tree: every function checks one value completely and says where and what is wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/event.hpp"
#include "scenario/yaml_node.hpp"

namespace dsv4::scenario {

/// The readers of one file.
class YamlReader {
 public:
  explicit YamlReader(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  [[noreturn]] void fail(Mark mark, const std::string& message) const { fail_at(file_, mark, message); }

  /// A decimal integer in [lowest, highest]; `037`, `0x1f`, `1e3`, `1_000` and quoted numbers are refused.
  std::int64_t integer(const YamlNode& node, std::string_view what, std::int64_t lowest,
                       std::int64_t highest) const;
  std::int32_t int32(const YamlNode& node, std::string_view what, std::int32_t lowest,
                     std::int32_t highest) const {
    return static_cast<std::int32_t>(integer(node, what, lowest, highest));
  }
  /// A decimal integer in [0, 2^64).
  std::uint64_t uint64(const YamlNode& node, std::string_view what) const;
  /// A finite decimal number.
  double number(const YamlNode& node, std::string_view what) const;
  /// `true` or `false`, nothing else.
  bool boolean(const YamlNode& node, std::string_view what) const;
  /// A non-empty scalar.
  std::string text(const YamlNode& node, std::string_view what) const;
  /// One of the words; returns its index.
  std::size_t word(const YamlNode& node, std::string_view what,
                   std::initializer_list<std::string_view> known) const;
  /// The name of a request or snapshot.
  At<std::string> name(const YamlNode& node, std::string_view what) const;

  void expect_map(const YamlNode& node, std::string_view what) const;
  const std::vector<YamlNode>& list(const YamlNode& node, std::string_view what) const;

 private:
  std::string file_;
};

/// A mapping with a fixed set of keys: refuses unknown ones at once, names missing ones.
class MapReader {
 public:
  MapReader(const YamlReader& reader, const YamlNode& map, std::string_view what,
            std::initializer_list<std::string_view> known);

  /// The value of a key that must be there.
  const YamlNode& required(std::string_view key) const;
  /// The value, or null when the key is absent.
  const YamlNode* optional(std::string_view key) const { return map_.find(key); }
  Mark mark() const { return map_.mark; }

 private:
  const YamlReader& reader_;
  const YamlNode& map_;
  std::string what_;
};

/// "a, b, c"
std::string joined(std::initializer_list<std::string_view> words);

}  // namespace dsv4::scenario
