/// A whole attention layer as straight loops over docs/numerics.md, one request from its first token on,
/// everything in plain arrays: no pages, no chunks, no tiles. The independent opinion against which the
/// engine's stages are compared bit for bit. Every axis of docs/numerics.md 17 that the engine takes is here
/// as one condition.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/inputs.hpp"
#include "model/profile.hpp"

namespace dsv4::reference::test {

/// Whole tensors of the one step, by path ("q.up/raw"), little-endian bytes.
using LiteralTensors = std::map<std::string, std::vector<std::uint8_t>>;

/// `hidden` [tokens][dim] bf16 bits.
LiteralTensors literal_layer(LayerKind kind, const Geometry& geometry, const LayerWeights& weights,
                             const std::vector<std::vector<std::uint16_t>>& hidden, const Profile& profile);

}  // namespace dsv4::reference::test
