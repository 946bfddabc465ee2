#include "oracle/faults/compressor_form.hpp"

#include <algorithm>

#include "oracle/slots.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

constexpr CompressorStages kMain{false,
                                 Stage::compress_project,
                                 Stage::compress_state,
                                 Stage::compress_pool,
                                 Stage::compress_finish,
                                 Cache::state,
                                 Cache::entries,
                                 compress_kv,
                                 compress_score,
                                 compress_state_kv,
                                 compress_state_score,
                                 compress_state_slot,
                                 compress_state_token,
                                 compress_pooled,
                                 compress_pool_request,
                                 compress_pool_index,
                                 compress_request,
                                 compress_index,
                                 compress_slot,
                                 compress_entry,
                                 compress_codes,
                                 compress_scales,
                                 compress_page_bytes};
constexpr CompressorStages kIndexer{true,
                                    Stage::indexer_project,
                                    Stage::indexer_state,
                                    Stage::indexer_pool,
                                    Stage::indexer_finish,
                                    Cache::index_state,
                                    Cache::index_entries,
                                    indexer_kv,
                                    indexer_score_raw,
                                    indexer_state_kv,
                                    indexer_state_score,
                                    indexer_state_slot,
                                    indexer_state_token,
                                    indexer_pooled,
                                    indexer_pool_request,
                                    indexer_pool_index,
                                    indexer_request,
                                    indexer_index,
                                    indexer_slot,
                                    indexer_entry,
                                    indexer_codes,
                                    indexer_scales,
                                    indexer_page_bytes};

}  // namespace

const CompressorStages& compressor_stages(const Parameters& parameters) {
  return parameters.word("compressor") == "indexer" ? kIndexer : kMain;
}

CompressorForm::CompressorForm(FaultyEngine& subject, int layer, const CompressorStages& stages)
    : d(stages.indexer ? kIndexDim : kHeadDim),
      ratio(dsv4::ratio(subject.kind(layer))),
      overlap(subject.kind(layer) == LayerKind::csa),
      online(subject.kind(layer) == LayerKind::hca && subject.config().cache.c128_state == C128State::online),
      channels(compressor_channels(subject.kind(layer), d)),
      weights(stages.indexer ? subject.weights(layer).indexer_compressor
                             : subject.weights(layer).compressor) {}

const RequestStep* share_of(const StepPlan& plan, std::int32_t request) {
  const auto found = std::ranges::find(plan.requests, request, &RequestStep::request);
  return found == plan.requests.end() ? nullptr : &*found;
}

std::int64_t slot_in(const RunConfig& config, int layer, Cache cache, const RequestStep& request,
                     std::int32_t index) {
  return slot_of(cache_shape(config, layer, cache), *request.tables, request.state_base, index);
}

std::vector<float> biased_score(const CompressorForm& form, const Tensor& score, std::int64_t batch_row,
                                std::int32_t residue) {
  const auto raw = tensor_row<float>(score, batch_row);
  std::vector<float> biased(raw.begin(), raw.end());
  const auto first = static_cast<std::size_t>(residue) * biased.size();
  for (std::size_t i = 0; i < biased.size(); ++i) biased[i] = biased[i] + form.weights.ape[first + i];
  return biased;
}

Tensor without_rows(const Tensor& tensor, const std::vector<bool>& dropped) {
  std::vector<std::int64_t> shape = tensor.shape();
  shape[0] = std::ranges::count(dropped, false);
  Tensor rest(tensor.dtype(), shape);
  const std::size_t size = static_cast<std::size_t>(tensor.row_elements()) * size_bytes(tensor.dtype());
  std::size_t to = 0;
  for (std::size_t row = 0; row < dropped.size(); ++row) {
    if (dropped[row]) continue;
    std::ranges::copy(tensor.bytes().subspan(row * size, size),
                      rest.bytes().begin() + static_cast<std::ptrdiff_t>(to++ * size));
  }
  return rest;
}

}  // namespace dsv4::oracle::faults
