/// A step made by hand: every tensor of the catalogue with plausible shapes and finite values, for comparison
/// tests.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/observation.hpp"

namespace dsv4::test {

/// Requests a (index 0) and b (1). Layers as given, geometry below.
SourceInfo synthetic_info(std::vector<LayerKind> layers);

inline constexpr int kTokens = 7;
inline constexpr int kPaddingRow = 6;
inline constexpr int kVisible[kTokens]{2, 2, 2, 3, 2, 3, 0};
inline constexpr int kScoreWidth = 12;

/// Rows 0..3: request a, positions 8..11; rows 4, 5: request b, positions 10, 11; row 6: padding.
StepObservation synthetic_step(const SourceInfo& info);

/// Element of a tensor whose change is judged: in a row that is no padding, below `visible`, no spare byte.
std::int64_t judged_element(TensorId id, const Tensor& tensor);

/// Flips the lowest bit of an element.
void flip(Tensor& tensor, std::int64_t element);

template <class T>
void set(Tensor& tensor, std::int64_t element, T bits) {
  tensor.as<T>()[static_cast<std::size_t>(element)] = bits;
}

}  // namespace dsv4::test
