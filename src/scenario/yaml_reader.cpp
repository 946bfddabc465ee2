#include "scenario/yaml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "scenario/scenario.hpp"

namespace dsv4::scenario {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// [0-9]+ with an optional sign, without a leading zero; why not, or empty.
std::string decimal_fault(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return fmt::format("must be an integer, not {}", describe(node));
  if (!node.plain) return fmt::format("must be an integer, not the text {}", describe(node));
  std::string_view digits = node.text;
  if (digits.starts_with('-')) digits.remove_prefix(1);
  if (!all_digits(digits)) return fmt::format("must be a decimal integer, not '{}'", node.text);
  if (digits.size() > 1 && digits.front() == '0') {
    return fmt::format(
        "must be a decimal integer without leading zeros, not '{}' (YAML 1.1 reads it as octal)", node.text);
  }
  return {};
}

}  // namespace

std::int64_t YamlReader::integer(const YamlNode& node, std::string_view what, std::int64_t lowest,
                                 std::int64_t highest) const {
  if (const std::string fault = decimal_fault(node); !fault.empty())
    fail(node.mark, fmt::format("{} {}", what, fault));
  std::int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc{} || stop != end || value < lowest || value > highest) {
    fail(node.mark, fmt::format("{} must be {} to {}, not {}", what, lowest, highest, node.text));
  }
  return value;
}

std::uint64_t YamlReader::uint64(const YamlNode& node, std::string_view what) const {
  if (const std::string fault = decimal_fault(node); !fault.empty())
    fail(node.mark, fmt::format("{} {}", what, fault));
  std::uint64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc{} || stop != end) {
    fail(node.mark, fmt::format("{} must be 0 to {}, not {}", what, std::numeric_limits<std::uint64_t>::max(),
                                node.text));
  }
  return value;
}

double YamlReader::number(const YamlNode& node, std::string_view what) const {
  if (node.kind != YamlNode::Kind::scalar || !node.plain) {
    fail(node.mark, fmt::format("{} must be a number, not {}", what, describe(node)));
  }
  double value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) {
    fail(node.mark, fmt::format("{} must be a finite decimal number, not '{}'", what, node.text));
  }
  return value;
}

bool YamlReader::boolean(const YamlNode& node, std::string_view what) const {
  if (node.kind == YamlNode::Kind::scalar && node.plain) {
    if (node.text == "true") return true;
    if (node.text == "false") return false;
  }
  fail(node.mark, fmt::format("{} must be true or false, not {}", what, describe(node)));
}

std::string YamlReader::text(const YamlNode& node, std::string_view what) const {
  if (node.kind != YamlNode::Kind::scalar) {
    fail(node.mark, fmt::format("{} must be a text, not {}", what, describe(node)));
  }
  if (node.text.empty()) fail(node.mark, fmt::format("{} is empty", what));
  return node.text;
}

std::size_t YamlReader::word(const YamlNode& node, std::string_view what,
                             std::initializer_list<std::string_view> known) const {
  if (node.kind == YamlNode::Kind::scalar) {
    const auto found = std::find(known.begin(), known.end(), node.text);
    if (found != known.end()) return static_cast<std::size_t>(found - known.begin());
  }
  fail(node.mark, fmt::format("{} must be one of {}, not {}", what, joined(known), describe(node)));
}

At<std::string> YamlReader::name(const YamlNode& node, std::string_view what) const {
  if (node.kind != YamlNode::Kind::scalar) {
    fail(node.mark, fmt::format("{} must be a name, not {}", what, describe(node)));
  }
  if (!is_request_name(node.text)) {
    fail(node.mark,
         fmt::format("{} '{}' is not a name: [a-z][a-z0-9_]*, at most 64 characters", what, node.text));
  }
  return {node.text, node.mark};
}

void YamlReader::expect_map(const YamlNode& node, std::string_view what) const {
  if (node.kind != YamlNode::Kind::map) {
    fail(node.mark, fmt::format("{} must be a mapping, not {}", what, describe(node)));
  }
}

const std::vector<YamlNode>& YamlReader::list(const YamlNode& node, std::string_view what) const {
  if (node.kind != YamlNode::Kind::list) {
    fail(node.mark, fmt::format("{} must be a list, not {}", what, describe(node)));
  }
  return node.items;
}

MapReader::MapReader(const YamlReader& reader, const YamlNode& map, std::string_view what,
                     std::initializer_list<std::string_view> known)
    : reader_(reader), map_(map), what_(what) {
  reader.expect_map(map, what);
  for (const auto& [key, value] : map.entries) {
    if (std::find(known.begin(), known.end(), key.text) == known.end()) {
      reader.fail(key.mark, fmt::format("{} has no key '{}' (known: {})", what, key.text, joined(known)));
    }
  }
}

const YamlNode& MapReader::required(std::string_view key) const {
  const YamlNode* value = map_.find(key);
  if (value == nullptr) reader_.fail(map_.mark, fmt::format("{} needs the key '{}'", what_, key));
  return *value;
}

std::string joined(std::initializer_list<std::string_view> words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace dsv4::scenario
