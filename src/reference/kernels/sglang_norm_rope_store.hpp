/// SGLang's norm, RoPE and cache insert of pooled rows (fused_norm_rope_v2.cuh, read at 6ed5780c4fd3; nvcc
/// 13.0.88 without fast-math: subnormals stay). Contract: sglang.md sections 3.2, 12 and 15.
///
/// Row i of `input` [rows, d] float32 is an entry of position seq_len - ratio. `weight` [d] float32; `freqs`
/// [positions, 32 pairs of (cos, sin)] float32. `cache` is whole pages of `page_rows` rows, `page_bytes`
/// apart; bytes that no row owns stay as they are.
///   y = rn(rn(x * g) * w), g = RSQ(fma(sum of squares, 1 / d, eps))
///   even' = fma(even, cos, -rn(odd * sin)), odd' = fma(even, sin, rn(odd * cos)), on the last 64 dims
#pragma once

#include <cstddef>

#include "reference/kernels/sglang_plan.hpp"

namespace dsv4::kernels {

struct SglangStoreTask {
  std::int64_t ratio = 4;
  std::int64_t rows = 0;
  const float* input = nullptr;
  const float* weight = nullptr;
  float eps = 0;
  const float* freqs = nullptr;
  /// One of the two has `rows` elements. Decode rows off the boundary and invalid plans write nothing.
  std::span<const SglangDecodePlan> decode;
  std::span<const SglangCompressPlan> extend;
  /// Slot of row i (decoding) or of plan.ragged_id (extend).
  const std::int64_t* out_loc = nullptr;
  std::span<std::byte> cache;
  std::int64_t page_rows = 64;
  std::int64_t page_bytes = 0;
  /// [rows, d] float32, or null: the rows as they are quantised (d = 512: dims 0..447 before they pass through
  /// bf16). The kernel keeps them in registers.
  float* prepared = nullptr;
};

/// d = 512. Row: e4m3 of dims 0..447, bf16 of dims 448..511; then, behind the values of all rows of the page,
/// seven ue8m0 bytes of an 8-byte row. Dims 0..447 pass through bf16; a block of 64 has the scale
/// 2^ceil(log2(max(absmax, 1e-4) / 448)).
/// Sum of squares: thread t owns dims 2t, 2t + 1: fma(x1, x1, rn(x0 * x0)); shuffles 16..1, then 4, 2, 1 over
/// the eight warps.
void sglang_norm_rope_store_flashmla(const SglangStoreTask& task);

/// d = 128. Row: 128 e4m3 codes; behind the rows of the page one float32 scale each, max(absmax, 1e-4) / 448,
/// any float32; codes are of rn(y * rn(1 / scale)). Between RoPE and quantising: Hadamard by additions, then
/// times 0x3DB504F3; no bf16 on the way.
/// Sum of squares: lane l owns dims 4l..4l+3, a chain of fma from 0; shuffles 16..1.
void sglang_norm_rope_store_indexer_fp8(const SglangStoreTask& task);

/// d = 128, as above up to the Hadamard transform. Row: 64 bytes of e2m1 (the even element in the low
/// nibble); behind the rows four ue8m0 bytes each, blocks of 32, 2^ceil(log2(max(absmax, 1e-4) / 6)). A code
/// counts the thresholds 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5 that |x| exceeds: ties go down, -0 never occurs.
void sglang_norm_rope_store_indexer_fp4(const SglangStoreTask& task);

}  // namespace dsv4::kernels
