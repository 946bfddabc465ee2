#include "scenario/yaml_node.hpp"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "model/error.hpp"

namespace dsv4::scenario {
namespace {

Mark mark_of(const YAML::Mark& mark) {
  if (mark.line < 0) return {};
  return {mark.line + 1, mark.column + 1};
}

/// Builds the tree from yaml-cpp's events, which still carry tags and anchors.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(node(YamlNode::Kind::null, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_at(file_, mark_of(mark), "aliases are not allowed");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode scalar = node(YamlNode::Kind::scalar, mark);
    scalar.text = value;
    scalar.plain = tag == "?";
    add(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    open_.push_back({node(YamlNode::Kind::list, mark), {}, false});
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    open_.push_back({node(YamlNode::Kind::map, mark), {}, false});
  }
  void OnMapEnd() override { close(); }

 private:
  static YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode made;
    made.kind = kind;
    made.mark = mark_of(mark);
    return made;
  }

  struct Open {
    YamlNode node;
    YamlNode key;
    bool has_key;
  };

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail_at(file_, mark_of(mark), "anchors are not allowed");
  }
  /// "" and "?" are untagged nodes, "!" a quoted scalar.
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail_at(file_, mark_of(mark), fmt::format("tags are not allowed ('{}')", tag));
    }
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      check_key(parent.node, node);
      parent.key = std::move(node);
      parent.has_key = true;
    } else {
      parent.node.entries.push_back({std::move(parent.key), std::move(node)});
      parent.has_key = false;
    }
  }

  void check_key(const YamlNode& map, const YamlNode& key) const {
    const Mark mark = key.mark.line > 0 ? key.mark : map.mark;
    if (key.kind != YamlNode::Kind::scalar)
      fail_at(file_, mark, "a key must be a word, not " + describe(key));
    if (key.text == "<<") fail_at(file_, mark, "merge keys are not allowed ('<<')");
    const auto same =
        std::ranges::find(map.entries, key.text, [](const auto& entry) { return entry.key.text; });
    if (same != map.entries.end()) {
      fail_at(file_, mark,
              fmt::format("duplicate key '{}' (first on line {})", key.text, same->key.mark.line));
    }
  }

  const std::string& file_;
  YamlNode root_;
  std::vector<Open> open_;
};

constexpr std::size_t kMaxMessage = 500;

/// Place of the first byte that is not UTF-8 (RFC 3629: shortest forms, no surrogates); npos if there is
/// none.
std::size_t invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  for (std::size_t at = 0; at < text.size();) {
    const unsigned first = byte(at);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0) return at;
    for (std::size_t i = 1; i < length; ++i) {
      if ((byte(at + i) & 0xC0U) != 0x80) return at;
    }
    const unsigned second = byte(at + 1);
    const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
    if (overlong || beyond) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace

void fail_at(const std::string& file, Mark mark, const std::string& message) {
  const std::string said = printable(message, kMaxMessage);
  if (mark.line <= 0) throw UsageError(fmt::format("{}: {}", file, said));
  throw UsageError(fmt::format("{}:{}:{}: {}", file, mark.line, mark.column, said));
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string result(text.substr(0, longest));
  if (text.size() > longest) {
    // Not within a character of several bytes.
    while (!result.empty() && (static_cast<unsigned char>(text[result.size()]) & 0xC0) == 0x80)
      result.pop_back();
    result += "...";
  }
  std::ranges::replace_if(
      result, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return result;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text == key) return &value;
  }
  return nullptr;
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return fmt::format("{0}{1}{0}", node.plain ? "'" : "\"", node.text);
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a mapping";
  }
  return "?";
}

void require_text(std::string_view text, const std::string& file) {
  const auto line_of = [&](std::size_t at) {
    return Mark{static_cast<int>(std::ranges::count(text.substr(0, at), '\n')) + 1, 1};
  };
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    fail_at(file, line_of(nul), "a zero byte: this is not a text file");
  }
  if (const std::size_t wrong = invalid_utf8(text); wrong != std::string_view::npos) {
    fail_at(file, line_of(wrong),
            fmt::format("byte 0x{:02x} is not part of UTF-8 text", static_cast<unsigned char>(text[wrong])));
  }
}

YamlNode parse_yaml(std::string_view text, const std::string& file) {
  require_text(text, file);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(file);
    if (!parser.HandleNextDocument(builder)) fail_at(file, {1, 1}, "the file is empty");
    YamlNode root = builder.take();
    TreeBuilder second(file);
    if (parser.HandleNextDocument(second)) {
      fail_at(file, second.take().mark, "a second document is not allowed");
    }
    return root;
  } catch (const YAML::DeepRecursion& error) {
    fail_at(file, mark_of(error.mark), "nested too deeply");
  } catch (const YAML::Exception& error) {
    // yaml-cpp 0.8 adds the anchor's name; the message is the same for every version.
    constexpr std::string_view kNoAnchor = "the referenced anchor is not defined";
    fail_at(file, mark_of(error.mark), error.msg.starts_with(kNoAnchor) ? std::string(kNoAnchor) : error.msg);
  }
}

}  // namespace dsv4::scenario
