/// Sparse attention of decode over FP8 pages: FlashMLA 9241ae3ef9ba, sm90 sparse_fp8 splitkv_mla (MODEL1,
/// 512-wide keys) and its combine kernel. docs/kernel-models.md, FlashMLA. Bits are those of the recorded
/// kernels for 64 and 128 heads, with and without the extra cache, lengths, sinks and splits.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/kernels/flashmla_block.hpp"
#include "reference/kernels/flashmla_decode_schedule.hpp"

namespace dsv4::kernels {

/// A paged cache and each query token's list of its rows. A page of n rows: n * 576 bytes (448 e4m3, 64 bf16
/// each), then n * 8 bytes (7 ue8m0 scales of 64 columns, one unused).
struct FlashmlaPagedKeys {
  const std::uint8_t* bytes = nullptr;
  std::int64_t pages = 0;
  std::int64_t page_rows = 0;
  std::int64_t page_stride = 0;           ///< bytes
  const std::int32_t* indices = nullptr;  ///< [batch, queries, topk]: page * page_rows + row; -1 is no key
  int topk = 0;                           ///< of the window a multiple of 64; 0: no such cache
  const std::int32_t* lengths = nullptr;  ///< [batch]: list entries from there on are no keys; null: topk
};

struct FlashmlaSparseDecode {
  int batch = 0;
  int queries = 1;  ///< query tokens of a request
  int heads = 64;   ///< 64 or 128
  /// Of these the first are real, the rest pads the kernel's tile: outputs of theirs are not computed. 0: all
  /// are real.
  int live_heads = 0;
  float softmax_scale = 0;
  const std::uint16_t* q = nullptr;  ///< bf16 [batch, queries, heads, 512]
  FlashmlaPagedKeys window;
  FlashmlaPagedKeys extra;
  const float* sink = nullptr;  ///< [heads], may be infinite; null: none
  int num_sm_parts = 0;         ///< decode_num_sm_parts of the GPU
  /// What the compiler chose (nvcc 13.0.88).
  FlashExponent exponent = FlashExponent::fused;
  FlashRowSum row_sum = FlashRowSum::serial;
};

struct FlashmlaSparseDecodeResult {
  std::vector<std::uint16_t> out;  ///< bf16 [batch, queries, heads, 512]; no key: zeros
  std::vector<float> lse;          ///< [batch, queries, heads], natural, without the sink; no key: +inf
  DecodeSchedule schedule;
  /// [pieces, queries, heads] (powers of two) and [pieces, queries, heads, 512]: what the combine kernel
  /// reads. Zero where a request is one piece: the kernel does not write those.
  std::vector<float> lse_accum;
  std::vector<float> o_accum;
};

/// Throws InternalError for a shape that the kernel refuses and an index outside the cache.
FlashmlaSparseDecodeResult flashmla_sparse_decode(const FlashmlaSparseDecode& in);

/// Combines the pieces of one request for one query token and head. lse [pieces], o [pieces, 512], each with
/// its own stride; sink null: none.
void flashmla_combine(const float* lse, std::int64_t lse_stride, const float* o, std::int64_t o_stride,
                      int pieces, const float* sink, std::uint16_t* out, float* out_lse);

/// One row of a page as the kernel hands it to the tensor core: e4m3 times scale in bf16, then the 64 bf16.
void flashmla_dequantise(const FlashmlaPagedKeys& keys, std::int32_t index, std::uint16_t* row);

}  // namespace dsv4::kernels
