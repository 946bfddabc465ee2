/// Rows of the KV caches (window and compressed pages): quantised, published and packed (docs/numerics.md 4,
/// 11, 12.7).
#pragma once

#include <cstddef>
#include <vector>

#include "wide/layer.hpp"

namespace dsv4::wide {

struct KeyTensors {
  TensorId key;  ///< bf16 row before quantisation
  TensorId codes;
  TensorId rope;
  TensorId scales;
  TensorId page_bytes;
};

/// Publishes 512-wide keys and all forms of them; returns the cache row of each.
std::vector<std::vector<std::byte>> publish_keys(Layer& layer, const KeyTensors& ids, Balls keys);

/// The float64 row of a cache in `exact`.
std::vector<std::byte> exact_row(const Values& values, Eigen::Index row);

}  // namespace dsv4::wide
