#include "reference/input_store.hpp"

#include <algorithm>

namespace dsv4::reference {

void InputStore::put(int layer, std::uint64_t content, std::span<const std::uint16_t> row) {
  const auto index = static_cast<std::size_t>(layer);
  if (index >= layers_.size()) layers_.resize(index + 1);
  layers_[index][content].assign(row.begin(), row.end());
}

std::span<const std::uint16_t> InputStore::find(int layer, std::uint64_t content) const {
  const auto index = static_cast<std::size_t>(layer);
  if (index >= layers_.size()) return {};
  const auto found = layers_[index].find(content);
  if (found == layers_[index].end()) return {};
  return found->second;
}

std::vector<StoredInput> InputStore::all(int layer) const {
  std::vector<StoredInput> rows;
  const auto index = static_cast<std::size_t>(layer);
  if (index >= layers_.size()) return rows;
  for (const auto& [content, row] : layers_[index]) rows.push_back({content, row});
  std::ranges::sort(rows, {}, &StoredInput::content);
  return rows;
}

}  // namespace dsv4::reference
