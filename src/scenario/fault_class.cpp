#include <algorithm>

#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

constexpr FaultClass kClasses[]{
    {"verify", "speculative verify and rollback of compressor state and window"},
    {"lifetime", "prefix hits, re-use, preemption, snapshots: who owns a row and how long"},
    {"compressor", "group boundaries, pooling, and writing out what was pooled"},
    {"rotary", "base, position, pairing, inverse rotation"},
    {"index", "index rows and scores: rotation, sign, weights, page layout"},
    {"selection", "which entries are selected"},
    {"visibility", "what a token may see"},
    {"poison", "invalid lanes, empty rows, memory that nobody wrote"},
    {"sink", "attention sink and merging of partial sums"},
    {"quantiser", "scales, saturation, formats"},
    {"address", "address arithmetic, pitches, page sizes, pools"},
    {"metadata", "batch metadata, padding, captured graphs"},
    {"ordering", "staging and scratch memory used again, late restores"},
    {"determinism", "batch shape and repetition"},
    {"layers", "stacks and profiles"},
};

}  // namespace

std::span<const FaultClass> fault_classes() {
  return kClasses;
}

std::string parse_class(const YamlReader& reader, const YamlNode& node) {
  const std::string text = reader.text(node, "class");
  if (std::ranges::find(kClasses, text, &FaultClass::name) != std::end(kClasses)) return text;
  std::string known;
  for (const FaultClass& one : kClasses) known += (known.empty() ? "" : ", ") + std::string(one.name);
  reader.fail(node.mark, "class must be one of " + known + ", not '" + printable(text, 60) + "'");
}

}  // namespace dsv4::scenario
