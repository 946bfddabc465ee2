#include "io/vectors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "io/atomic_file.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSourceName = "dsv4-oracle";

/// Keys of a test that are not inputs or outputs.
bool is_frame(const std::string& key) {
  return key == "tcId" || key == "comment" || key == "flags" || key == "result";
}

/// What is wrong with a file's content, or nothing: ids, flags, repeated fields.
std::string fault(const VectorFile& file) {
  if (file.schema.empty() || file.algorithm.empty()) return "schema or algorithm is empty";
  int last = 0;
  for (const VectorGroup& group : file.groups) {
    if (group.type.empty()) return "a group has no type";
    for (const VectorCase& test : group.tests) {
      if (test.tc_id != last + 1) return fmt::format("tcId {} follows {}", test.tc_id, last);
      last = test.tc_id;
      for (const std::string& flag : test.flags) {
        if (!file.notes.contains(flag))
          return fmt::format("tcId {} has the flag '{}', which has no note", last, flag);
      }
      std::set<std::string> names;
      for (const auto& [name, value] : test.fields) {
        if (is_frame(name) || !names.insert(name).second) {
          return fmt::format("tcId {} has the field '{}' twice", last, name);
        }
      }
    }
  }
  return {};
}

Json to_json(const VectorCase& test) {
  Json json{{"tcId", test.tc_id}, {"comment", test.comment}, {"flags", test.flags}};
  for (const auto& [name, value] : test.fields) json[name] = value;
  json["result"] = test.result;
  return json;
}

Json to_json(const VectorGroup& group) {
  Json json{{"type", group.type}};
  for (const auto& [name, value] : group.labels) json[name] = value;
  for (const auto& [name, value] : group.parameters) json[name] = value;
  json["source"] = {{"name", kSourceName}};
  json["tests"] = Json::array();
  for (const VectorCase& test : group.tests) json["tests"].push_back(to_json(test));
  return json;
}

/// Turns JSON into a VectorFile; every message names file and place.
class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  VectorFile file(const Json& root) const {
    only(root, "the file", {"schema", "algorithm", "specRevision", "numberOfTests", "notes", "testGroups"});
    VectorFile result;
    result.schema = text(root, "schema", "the file");
    result.algorithm = text(root, "algorithm", "the file");
    result.spec_revision = text(root, "specRevision", "the file");
    for (const auto& [flag, note] : member(root, "notes", "the file").items()) {
      const std::string place = "note '" + flag + "'";
      only(note, place, {"bugType", "description"});
      result.notes[flag] = {text(note, "bugType", place), text(note, "description", place)};
    }
    for (const Json& item : array(root, "testGroups", "the file")) result.groups.push_back(group(item));
    const std::int64_t stated = integer(root, "numberOfTests", "the file");
    if (stated != result.test_count()) {
      refuse("the file", fmt::format("states {} tests and holds {}", stated, result.test_count()));
    }
    if (const std::string why = fault(result); !why.empty()) refuse("the file", "is inconsistent: " + why);
    return result;
  }

  [[noreturn]] void refuse(const std::string& place, const std::string& why) const {
    throw FileError(path_ + ": " + place + " " + why);
  }

 private:
  VectorGroup group(const Json& json) const {
    if (!json.is_object()) refuse("a test group", "is not an object");
    VectorGroup result;
    for (const auto& [key, value] : json.items()) {
      if (key == "source" || key == "tests") continue;
      if (key == "type") {
        result.type = text(json, "type", "a test group");
      } else if (value.is_string()) {
        result.labels.emplace_back(key, value.get<std::string>());
      } else {
        result.parameters.emplace_back(key, integer(json, key.c_str(), "a test group"));
      }
    }
    for (const Json& item : array(json, "tests", "a test group")) result.tests.push_back(test(item));
    return result;
  }

  VectorCase test(const Json& json) const {
    VectorCase result;
    result.tc_id = static_cast<int>(integer(json, "tcId", "a test"));
    const std::string place = fmt::format("test {}", result.tc_id);
    result.comment = text(json, "comment", place);
    result.result = text(json, "result", place);
    for (const Json& flag : array(json, "flags", place)) {
      if (!flag.is_string()) refuse(place, "has a flag that is not text");
      result.flags.push_back(flag.get<std::string>());
    }
    for (const auto& [key, value] : json.items()) {
      if (!is_frame(key)) result.fields.emplace_back(key, text(json, key.c_str(), place));
    }
    return result;
  }

  void only(const Json& json, const std::string& place, std::initializer_list<std::string_view> known) const {
    if (!json.is_object()) refuse(place, "is not an object");
    for (const auto& [key, value] : json.items()) {
      if (std::ranges::find(known, key) == known.end()) refuse(place, "has the unknown key '" + key + "'");
    }
  }
  const Json& member(const Json& json, const char* key, const std::string& place) const {
    if (!json.is_object() || !json.contains(key)) refuse(place, std::string("has no '") + key + "'");
    return json[key];
  }
  std::string text(const Json& json, const char* key, const std::string& place) const {
    const Json& value = member(json, key, place);
    if (!value.is_string()) refuse(place, std::string("has a '") + key + "' that is not text");
    return value.get<std::string>();
  }
  std::int64_t integer(const Json& json, const char* key, const std::string& place) const {
    const Json& value = member(json, key, place);
    if (!value.is_number_integer()) refuse(place, std::string("has a '") + key + "' that is not an integer");
    return value.get<std::int64_t>();
  }
  const Json& array(const Json& json, const char* key, const std::string& place) const {
    const Json& value = member(json, key, place);
    if (!value.is_array()) refuse(place, std::string("has a '") + key + "' that is not a list");
    return value;
  }

  const std::string& path_;
};

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

const std::string& VectorCase::field(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &std::pair<std::string, std::string>::first);
  if (found == fields.end()) throw FileError(fmt::format("test {} has no field '{}'", tc_id, name));
  return found->second;
}

std::int64_t VectorFile::test_count() const {
  std::int64_t count = 0;
  for (const VectorGroup& group : groups) count += static_cast<std::int64_t>(group.tests.size());
  return count;
}

void write_vectors(const std::string& path, const VectorFile& file) {
  if (const std::string why = fault(file); !why.empty()) throw InternalError(path + ": " + why);
  Json notes = Json::object();
  for (const auto& [flag, note] : file.notes) {
    notes[flag] = {{"bugType", note.bug_type}, {"description", note.description}};
  }
  Json root{{"schema", file.schema},
            {"algorithm", file.algorithm},
            {"specRevision", file.spec_revision},
            {"numberOfTests", file.test_count()},
            {"notes", notes},
            {"testGroups", Json::array()}};
  for (const VectorGroup& group : file.groups) root["testGroups"].push_back(to_json(group));
  AtomicFile out(path);
  out.write(root.dump(1) + "\n");
  out.finish();
}

VectorFile read_vectors(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw FileError(path + ": is a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(path + ": cannot open");
  Json root;
  try {
    in >> root;
  } catch (const Json::exception& error) {
    throw FileError(path + ": not JSON: " + error.what());
  }
  return Parser(path).file(root);
}

template <class T>
std::string to_hex(std::span<const T> elements) {
  std::string text;
  text.reserve(2 * sizeof(T) * elements.size());
  for (const T element : elements) {
    for (int shift = 8 * static_cast<int>(sizeof(T)) - 4; shift >= 0; shift -= 4) {
      text += "0123456789abcdef"[(element >> shift) & 15];
    }
  }
  return text;
}

template <class T>
std::vector<T> from_hex(std::string_view text) {
  constexpr std::size_t kDigits = 2 * sizeof(T);
  if (text.size() % kDigits != 0) {
    throw FileError(
        fmt::format("{} hex digits are no whole number of {}-byte elements", text.size(), sizeof(T)));
  }
  std::vector<T> elements(text.size() / kDigits);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = digit(text[i]);
    if (value < 0) throw FileError(fmt::format("'{}' is no lower-case hex digit", text[i]));
    T& element = elements[i / kDigits];
    element = static_cast<T>((element << 4) | static_cast<T>(value));
  }
  return elements;
}

template std::string to_hex<std::uint8_t>(std::span<const std::uint8_t>);
template std::string to_hex<std::uint16_t>(std::span<const std::uint16_t>);
template std::string to_hex<std::uint32_t>(std::span<const std::uint32_t>);
template std::vector<std::uint8_t> from_hex<std::uint8_t>(std::string_view);
template std::vector<std::uint16_t> from_hex<std::uint16_t>(std::string_view);
template std::vector<std::uint32_t> from_hex<std::uint32_t>(std::string_view);

}  // namespace dsv4::io
