#include "oracle/data_coverage.hpp"

#include <algorithm>
#include <bitset>
#include <limits>
#include <vector>

namespace dsv4::oracle {
namespace {

// Scale byte of a block of amax <= 1e-4: 1e-4 / 448 lies between 2^-23 and 2^-22.
constexpr std::uint8_t kFloorScaleByte = 127 - 22;

const Tensor* find(const LayerObservation& layer, TensorId id) {
  const auto found = layer.tensors.find(id);
  return found == layer.tensors.end() ? nullptr : &found->second;
}

/// Whether any word has all bits of `mask`; no branch within the loop, so that it is vectorised.
template <class Word>
bool any_full(const Tensor& tensor, std::int64_t first, std::int64_t count, Word mask) {
  const auto words =
      tensor.as<Word>().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  unsigned found = 0;
  for (const Word word : words) found |= (word & mask) == mask ? 1U : 0U;
  return found != 0;
}

/// Whether an inf or NaN is among `count` elements.
bool nonfinite(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  switch (tensor.dtype()) {
    case DType::float32:
      return any_full<std::uint32_t>(tensor, first, count, 0x7F800000U);
    case DType::bfloat16:
      return any_full<std::uint16_t>(tensor, first, count, 0x7F80U);
    case DType::float8_e4m3fn:
      return any_full<std::uint8_t>(tensor, first, count, 0x7FU);
    case DType::float8_e8m0fnu:
      return any_full<std::uint8_t>(tensor, first, count, 0xFFU);
    case DType::float64:
      return any_full<std::uint64_t>(tensor, first, count, 0x7FF0000000000000U);
    default:
      return false;
  }
}

/// Elements of row `row` that count.
std::int64_t counted(const LayerObservation& layer, TensorId id, const Tensor& tensor, std::int64_t row) {
  if (id != TensorId::scores) return tensor.row_elements();
  const Tensor* const visible = find(layer, TensorId::visible);
  if (visible == nullptr) return tensor.row_elements();
  return std::min<std::int64_t>(visible->as<std::int32_t>()[static_cast<std::size_t>(row)],
                                tensor.row_elements());
}

bool any_nonfinite(const StepObservation& step, const LayerObservation& layer, TensorId id,
                   const Tensor& tensor) {
  if (id == TensorId::attention_lse) return false;  // +inf is the right value of a token without a key
  const bool by_token = info(id).dims.starts_with("token");
  const auto requests = step.batch.request.as<std::int32_t>();
  const std::int64_t rows = tensor.shape().empty() ? 0 : tensor.dim(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (by_token && requests[static_cast<std::size_t>(row)] < 0) continue;
    const std::int64_t count = std::max<std::int64_t>(0, counted(layer, id, tensor, row));
    if (nonfinite(tensor, row * tensor.row_elements(), count)) return true;
  }
  return false;
}

void add_selection(const LayerObservation& layer, std::set<std::string>& facts) {
  const Tensor* const scores = find(layer, TensorId::scores);
  const Tensor* const visible = find(layer, TensorId::visible);
  const Tensor* const selected = find(layer, TensorId::selected);
  if (scores == nullptr || visible == nullptr || selected == nullptr) return;
  if (scores->dtype() != DType::float32) return;  // profile exact: float64, where ties mean nothing
  for (std::int64_t token = 0; token < scores->dim(0); ++token) {
    const auto row = static_cast<std::size_t>(token);
    const auto width = static_cast<std::size_t>(scores->dim(1));
    const auto seen = static_cast<std::size_t>(std::max(0, visible->as<std::int32_t>()[row]));
    const auto values = scores->as<float>().subspan(row * width, std::min(seen, width));
    if (std::ranges::any_of(values, [](float score) { return score != score; }))
      facts.insert("select.nan_score");
    const auto k = static_cast<std::size_t>(selected->dim(1));
    if (values.size() <= k) continue;
    std::vector<bool> chosen(values.size());
    float lowest = std::numeric_limits<float>::infinity();
    for (const std::int32_t index : selected->as<std::int32_t>().subspan(row * k, k)) {
      if (index < 0 || static_cast<std::size_t>(index) >= values.size()) continue;
      chosen[static_cast<std::size_t>(index)] = true;
      lowest = std::min(lowest, values[static_cast<std::size_t>(index)]);
    }
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (!chosen[index] && values[index] == lowest) facts.insert("select.tie_at_cut");
    }
  }
}

void add_quantisation(const Tensor& tensor, std::set<std::string>& facts) {
  if (tensor.dtype() == DType::float8_e4m3fn || tensor.dtype() == DType::float4_e2m1fn) {
    const unsigned magnitude = tensor.dtype() == DType::float8_e4m3fn ? 0x7FU : 0x7U;
    const unsigned largest = tensor.dtype() == DType::float8_e4m3fn ? 0x7EU : 0x7U;
    const auto codes = tensor.as<std::uint8_t>();
    if (std::ranges::any_of(codes, [=](std::uint8_t code) { return (code & magnitude) == largest; })) {
      facts.insert("quantize.saturated");
    }
  }
  if (tensor.dtype() == DType::float8_e8m0fnu) {
    std::bitset<256> exponents;
    for (const std::uint8_t byte : tensor.as<std::uint8_t>()) exponents.set(byte);
    if (exponents.test(kFloorScaleByte)) facts.insert("quantize.floor");
    exponents.reset(0);  // padding rows
    if (exponents.count() >= 3) facts.insert("quantize.exponents");
  }
}

}  // namespace

std::vector<std::string> nonfinite_tensors(const StepObservation& step) {
  std::vector<std::string> names;
  for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
    for (const auto& [id, tensor] : step.layers[layer].tensors) {
      if (any_nonfinite(step, step.layers[layer], id, tensor)) {
        names.push_back("layer " + std::to_string(layer) + " " + path(id));
      }
    }
  }
  return names;
}

void DataCoverage::add(const StepObservation& step) {
  for (const LayerObservation& layer : step.layers) {
    add_selection(layer, facts_);
    for (const auto& [id, tensor] : layer.tensors) add_quantisation(tensor, facts_);
    const Tensor* const window = find(layer, TensorId::window_length);
    const Tensor* const compressed = find(layer, TensorId::compressed_length);
    if (window == nullptr) continue;
    for (std::size_t token = 0; token < window->as<std::int32_t>().size(); ++token) {
      const bool keys = window->as<std::int32_t>()[token] > 0 ||
                        (compressed != nullptr && compressed->as<std::int32_t>()[token] > 0);
      if (!keys && step.batch.request.as<std::int32_t>()[token] >= 0) facts_.insert("attention.no_key");
    }
  }
  if (!nonfinite_tensors(step).empty()) facts_.insert("value.nonfinite");
}

}  // namespace dsv4::oracle
