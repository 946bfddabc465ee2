#include "scenario/request_state.hpp"

#include <algorithm>

#include "model/error.hpp"
#include "model/seeded.hpp"

namespace dsv4::scenario {

std::uint64_t RequestState::content(std::int32_t position) const {
  if (!given.empty()) return given.at(static_cast<std::size_t>(position));
  const auto generation =
      std::ranges::count_if(identity.rises, [&](std::int32_t from) { return from <= position; });
  if (generation == 0 && trace != nullptr) {
    const auto prompt = trace->requests.find(name);
    if (prompt != trace->requests.end() && position < prompt->second.tokens) {
      const auto block = static_cast<std::size_t>(position / trace->block);
      return trace_content_id(prompt->second.blocks.at(block), position % trace->block);
    }
  }
  return content_id(name, position, generation);
}

void RequestState::commit(std::int32_t position, std::uint64_t id) {
  require(position == identity.length, "tokens are committed in order");
  identity.ids.push_back(id);
  ++identity.length;
}

void RequestState::cut(std::int32_t length) {
  identity.length = length;
  identity.ids.resize(static_cast<std::size_t>(length));
  identity.rises.push_back(length);
  identity.filled = std::min(identity.filled, length);
  held.cut(length);
}

std::shared_ptr<const BlockTables> RequestState::snapshot() {
  if (!snapshot_) snapshot_ = std::make_shared<const BlockTables>(tables);
  return snapshot_;
}

}  // namespace dsv4::scenario
