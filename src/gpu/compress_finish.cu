/// compress.finish and indexer.finish: norm, RoPE at the window's first position, rotation, quantisation, page
/// insert (docs/numerics.md 12.7).
#include "gpu/check.cuh"
#include "gpu/compressor_ids.cuh"
#include "gpu/cuda_engine.cuh"
#include "gpu/index_row.cuh"
#include "gpu/kv_row.cuh"

namespace dsv4::gpu {

void compress_finish(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const CompressorIds ids = compressor_ids(call.stage);
  const CompressorStep& step = engine.layout().compressor(engine.kind(call.layer), ids.indexer);
  const std::int64_t n = step.entries();
  engine.publish_ints(call.layer, ids.request, step.entry_request);
  engine.publish_ints(call.layer, ids.index, step.entry_index);
  engine.publish_ints(call.layer, ids.slot, step.entry_slot);
  const CacheMemory& cache = engine.cache(call.layer, ids.entries);
  const auto* pooled = engine.input(call.layer, ids.pooled).as<float>();
  const std::uint16_t* norm = compressor_weights(engine, call.layer, ids).norm;
  if (ids.indexer) {
    publish_index_keys(engine, call.layer, {pooled, norm, step.entry_position.device, step.entry_slot.device}, n, cache);
  } else {
    using enum TensorId;
    publish_kv_rows(engine, call.layer,
                    {std::nullopt, compress_entry, compress_codes, compress_rope, compress_scales, compress_page_bytes},
                    {nullptr, pooled, norm, step.entry_position.device, step.entry_slot.device}, n, cache);
  }
  engine.note_writes(call.layer, call.stage, ids.entries, {ids.page_bytes});
}

}  // namespace dsv4::gpu
