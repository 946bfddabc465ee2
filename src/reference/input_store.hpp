/// Layer inputs of a chained run, kept so that a restore step can recompute any row of a layer by itself
/// (docs/numerics.md 12.6): bf16 rows by layer and content id of the token.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/engine.hpp"

namespace dsv4::reference {

class InputStore {
 public:
  void put(int layer, std::uint64_t content, std::span<const std::uint16_t> row);
  /// Empty if there is none.
  std::span<const std::uint16_t> find(int layer, std::uint64_t content) const;
  /// By ascending content id.
  std::vector<StoredInput> all(int layer) const;

 private:
  std::vector<std::unordered_map<std::uint64_t, std::vector<std::uint16_t>>> layers_;
};

}  // namespace dsv4::reference
