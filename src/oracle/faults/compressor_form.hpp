/// The compressor that a fault of the stages compress.* or indexer.* is about: tensors, caches, widths. The
/// indexer's stages are the compressor's with width 128 (docs/numerics.md 12).
#pragma once

#include "oracle/faults/faulty_engine.hpp"
#include "oracle/faults/parameters.hpp"

namespace dsv4::oracle::faults {

struct CompressorStages {
  bool indexer;
  Stage project, state, pool, finish;
  Cache state_cache, entry_cache;
  TensorId kv, score;  ///< project
  TensorId state_kv, state_score, state_slot, state_token;
  TensorId pooled, pool_request, pool_index;
  TensorId request, index, slot, entry, codes, scales, page_bytes;  ///< finish
};
/// By the parameter `compressor`: "main" or "indexer".
const CompressorStages& compressor_stages(const Parameters& parameters);
inline constexpr ParameterInfo kCompressor{"compressor", "main", "main|indexer", 0, 0, "whose stage"};

/// Numbers of one layer's compressor.
struct CompressorForm {
  CompressorForm(FaultyEngine& subject, int layer, const CompressorStages& stages);

  int d;  ///< width of an entry
  int ratio;
  bool overlap;  ///< windows of 2 * ratio rows, columns [0, d) then [d, 2d)
  bool online;   ///< one running row instead of a window (12.5)
  int channels;  ///< of a state row's kv
  const CompressorWeights& weights;
};

/// The share of a request in a step; null if it has none.
const RequestStep* share_of(const StepPlan& plan, std::int32_t request);
/// Slot of a row of a request's cache, -1 where no page is held.
std::int64_t slot_in(const RunConfig& config, int layer, Cache cache, const RequestStep& request,
                     std::int32_t index);

/// score' of a batch row (12.1): its raw score plus the APE of `residue`.
std::vector<float> biased_score(const CompressorForm& form, const Tensor& score, std::int64_t batch_row,
                                std::int32_t residue);

/// A copy of row `row` of a tensor whose first axis is rows.
template <class T>
std::span<const T> tensor_row(const Tensor& tensor, std::int64_t row) {
  const auto width = static_cast<std::size_t>(tensor.row_elements());
  return tensor.as<T>().subspan(static_cast<std::size_t>(row) * width, width);
}
template <class T>
std::span<T> tensor_row(Tensor& tensor, std::int64_t row) {
  const auto width = static_cast<std::size_t>(tensor.row_elements());
  return tensor.as<T>().subspan(static_cast<std::size_t>(row) * width, width);
}
/// The tensor without some rows of its first axis.
Tensor without_rows(const Tensor& tensor, const std::vector<bool>& dropped);

}  // namespace dsv4::oracle::faults
