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
  const DeviceTensor entry = engine.publish(call.layer, ids.entry, DType::bfloat16, {n, ids.d});
  if (n > 0) {
    auto* rows = engine.memory().get<std::uint16_t>("scratch/finish", static_cast<std::size_t>(n * ids.d));
    to_bf16(engine.input(call.layer, ids.pooled).as<float>(), rows, n * ids.d, engine.stream());
    rms_norm(rows, compressor_weights(engine, call.layer, ids).norm, rows, n, ids.d, engine.geometry().eps, engine.stream());
    const RopeRows table = engine.entry_rope(call.layer, step);
    rope(rows, entry.as<std::uint16_t>(), n, 1, ids.d, table.cosines, table.sines, false, engine.stream());
    if (ids.indexer && engine.profile().get<IndexRotation>() == IndexRotation::both) {
      hadamard(entry.as<std::uint16_t>(), entry.as<std::uint16_t>(), n, engine.stream());
    }
  }
  const CacheMemory& cache = engine.cache(call.layer, ids.entries);
  if (ids.indexer) {
    publish_index_rows(engine, call.layer, {ids.codes, ids.scales}, entry.as<std::uint16_t>(), {n});
    const DeviceTensor bytes =
        engine.publish(call.layer, ids.page_bytes, DType::uint8, {n, cache.value_bytes + cache.scale_bytes});
    pack_index_rows(engine, call.layer, {ids.codes, ids.scales}, bytes);
    write_rows(bytes.data, n, cache, step.entry_slot.device, engine.stream());
  } else {
    publish_kv_rows(engine, call.layer,
                    {TensorId::compress_codes, TensorId::compress_rope, TensorId::compress_scales,
                     TensorId::compress_page_bytes},
                    entry.as<std::uint16_t>(), n, cache, step.entry_slot.device);
  }
  engine.note_writes(call.layer, call.stage, ids.entries,
                     engine.input(call.layer, ids.page_bytes).data, n, cache.value_bytes + cache.scale_bytes);
}

}  // namespace dsv4::gpu
