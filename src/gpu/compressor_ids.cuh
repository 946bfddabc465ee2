/// Which tensors, caches and sizes the four compress stages use: the main compressor's or the indexer's.
#pragma once

#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {

struct CompressorIds {
  bool indexer;
  int d;
  Cache state, entries;
  TensorId kv, score, state_kv, state_score, state_slot, state_token, pooled, pool_request, pool_index, request,
      index, slot, entry, codes, scales, page_bytes;
};

inline CompressorIds compressor_ids(Stage stage) {
  using enum TensorId;
  switch (stage) {
    case Stage::indexer_project:
    case Stage::indexer_state:
    case Stage::indexer_pool:
    case Stage::indexer_finish:
      return {true, kIndexDim, Cache::index_state, Cache::index_entries, indexer_kv, indexer_score_raw,
              indexer_state_kv, indexer_state_score, indexer_state_slot, indexer_state_token, indexer_pooled,
              indexer_pool_request, indexer_pool_index, indexer_request, indexer_index, indexer_slot, indexer_entry,
              indexer_codes, indexer_scales, indexer_page_bytes};
    default:
      return {false, kHeadDim, Cache::state, Cache::entries, compress_kv, compress_score, compress_state_kv,
              compress_state_score, compress_state_slot, compress_state_token, compress_pooled, compress_pool_request,
              compress_pool_index, compress_request, compress_index, compress_slot, compress_entry, compress_codes,
              compress_scales, compress_page_bytes};
  }
}

inline const DeviceCompressor& compressor_weights(CudaEngine& engine, int layer, const CompressorIds& ids) {
  const DeviceWeights& weights = engine.weights(layer);
  return ids.indexer ? weights.indexer_compressor : weights.compressor;
}

}  // namespace dsv4::gpu
