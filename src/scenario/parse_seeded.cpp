#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "model/config_check.hpp"
#include "model/seed_edits.hpp"
#include "scenario/parse_parts.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::int64_t kLargestPlace = std::int64_t{1} << 40;
constexpr std::int64_t kMostPlaces = 1 << 16;
constexpr std::int32_t kLargestExponent = 120;

/// `7` or `3..9`, both ends included.
void take_places(const YamlReader& reader, const YamlNode& node, std::string_view what,
                 std::vector<std::int64_t>& places) {
  const std::size_t dots = node.text.find("..");
  if (node.kind != YamlNode::Kind::scalar || dots == std::string::npos) {
    places.push_back(reader.integer(node, what, 0, kLargestPlace));
    return;
  }
  YamlNode end = node;
  end.text = node.text.substr(0, dots);
  const std::int64_t first = reader.integer(end, what, 0, kLargestPlace);
  end.text = node.text.substr(dots + 2);
  const std::int64_t last = reader.integer(end, what, first, kLargestPlace);
  if (last - first >= kMostPlaces)
    reader.fail(node.mark, fmt::format("{} {} is too long a range", what, node.text));
  for (std::int64_t place = first; place <= last; ++place) places.push_back(place);
}

std::vector<std::int64_t> places_of(const YamlReader& reader, const YamlNode* node, std::string_view what) {
  std::vector<std::int64_t> places;
  if (node == nullptr) return places;
  if (node->kind != YamlNode::Kind::list) {
    take_places(reader, *node, what, places);
    return places;
  }
  for (const YamlNode& item : node->items) take_places(reader, item, what, places);
  if (places.empty()) reader.fail(node->mark, fmt::format("{} is empty", what));
  return places;
}

float value_of(const YamlReader& reader, const YamlNode& node) {
  if (node.text == "inf") return std::numeric_limits<float>::infinity();
  if (node.text == "-inf") return -std::numeric_limits<float>::infinity();
  return static_cast<float>(reader.number(node, "value"));
}

}  // namespace

std::vector<SeedEdit> parse_seed_edits(const YamlReader& reader, const YamlNode& node, const Model& model) {
  std::vector<SeedEdit> edits;
  for (const YamlNode& item : reader.list(node, "seeded")) {
    const MapReader map(reader, item, "an edit", {"tensor", "layer", "rows", "columns", "value", "scale"});
    SeedEdit edit;
    edit.tensor = reader.text(map.required("tensor"), "tensor");
    if (const YamlNode* layer = map.optional("layer"))
      edit.layer = reader.int32(*layer, "layer", 0, kMaxLayers - 1);
    edit.rows = places_of(reader, map.optional("rows"), "rows");
    edit.columns = places_of(reader, map.optional("columns"), "columns");
    const YamlNode* value = map.optional("value");
    const YamlNode* scale = map.optional("scale");
    if ((value == nullptr) == (scale == nullptr)) {
      reader.fail(item.mark, "an edit takes either value or scale, an exponent of two");
    }
    if (value != nullptr) edit.value = value_of(reader, *value);
    if (scale != nullptr) edit.scale = reader.int32(*scale, "scale", -kLargestExponent, kLargestExponent);
    if (const std::string fault = seed_edit_fault(edit, model.geometry, model.layers); !fault.empty()) {
      reader.fail(item.mark, fault);
    }
    edits.push_back(std::move(edit));
  }
  return edits;
}

}  // namespace dsv4::scenario
