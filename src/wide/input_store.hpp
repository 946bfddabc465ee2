/// Layer inputs of chained runs, kept so that a restore step can recompute a token's rows without the layers
/// below (docs/numerics.md 12.6). Keyed by content id: equal ids mean an equal token after an equal prefix.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/error.hpp"

namespace dsv4::wide {

class InputStore {
 public:
  void put(int layer, std::uint64_t content, std::vector<double> row) {
    layers_[layer][content] = std::move(row);
  }
  const std::vector<double>& get(int layer, std::uint64_t content) const {
    const auto of_layer = layers_.find(layer);
    require(of_layer != layers_.end() && of_layer->second.contains(content),
            "a restored token has no stored input");
    return of_layer->second.at(content);
  }
  /// Rows of a layer by ascending content id; null if none are kept.
  const std::map<std::uint64_t, std::vector<double>>* rows(int layer) const {
    const auto of_layer = layers_.find(layer);
    return of_layer == layers_.end() ? nullptr : &of_layer->second;
  }

 private:
  std::map<int, std::map<std::uint64_t, std::vector<double>>> layers_;
};

}  // namespace dsv4::wide
