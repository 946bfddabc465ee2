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

/// Publishes 512-wide keys and all forms of them; returns the cache row of each. `rounded`: the keys are a
/// bf16 rounding point before they are quantised (axis kv_row).
std::vector<std::vector<std::byte>> publish_keys(Layer& layer, const KeyTensors& ids, Balls keys,
                                                 bool rounded);

/// A row of a cache without a quantiser: bf16 or f16 values (section 17.8).
std::vector<std::byte> plain_row(const Values& values, Eigen::Index row, bool f16);

/// The float64 row of a cache in `exact`.
std::vector<std::byte> exact_row(const Values& values, Eigen::Index row);

}  // namespace dsv4::wide
