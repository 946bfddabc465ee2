/// Test vectors as JSON in the Wycheproof shape, for scalar and block numerics: conversions, block quantiser,
/// top-k ties, ring index. Values are lower-case hex strings, most significant digit first within an element,
/// elements one after another. data/schema holds a JSON schema for each kind.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsv4::io {

struct VectorNote {
  std::string bug_type;  ///< "EDGE_CASE", "MISSING_STEP", "WRONG_ORDER", ...
  std::string description;
};

struct VectorCase {
  int tc_id = 0;  ///< unique in the file, ascending from 1
  std::string comment;
  std::vector<std::string> flags;                           ///< keys of VectorFile::notes
  std::vector<std::pair<std::string, std::string>> fields;  ///< inputs and outputs, hex or decimal text
  std::string result = "valid";

  /// Throws FileError naming test and field when absent.
  const std::string& field(std::string_view name) const;
};

struct VectorGroup {
  std::string type;  ///< "QuantBlock", "Convert", "TopK", "RingIndex"
  std::vector<std::pair<std::string, std::int64_t>> parameters;  ///< "block": 64
  std::vector<std::pair<std::string, std::string>> labels;       ///< "to": "float8_e4m3fn"
  std::vector<VectorCase> tests;
};

struct VectorFile {
  std::string schema;  ///< "quant_block_v1.json"
  std::string algorithm;
  std::string spec_revision;  ///< revision of docs/numerics.md
  std::map<std::string, VectorNote> notes;
  std::vector<VectorGroup> groups;

  std::int64_t test_count() const;
};

/// Checks (ids ascending, flags noted, counts) and writes, atomically; throws InternalError for bad content.
void write_vectors(const std::string& path, const VectorFile& file);
/// Throws FileError naming file and place for bad JSON, unknown keys, wrong counts, unknown flags, repeated
/// ids.
VectorFile read_vectors(const std::string& path);

/// Hex of elements, each as wide as its type: {0x3f80, 1} -> "3f800001".
template <class T>
std::string to_hex(std::span<const T> elements);
/// Throws FileError when the text is not hex of whole elements.
template <class T>
std::vector<T> from_hex(std::string_view text);

}  // namespace dsv4::io
