/// vLLM's compressor in Triton (commit 5ac2684976ee; Triton 3.6.0, ptxas 12.8.93): pool a window of
/// compressor state, RMS norm, RoPE, quantise, insert into the paged cache. Contract: contracts/vllm.md
/// sections 7, 9.1 and 9.2. One model covers
///   _fused_kv_compress_norm_rope_insert_sparse_attn            head 512, ratio 4 or 128, main_fp8
///   _compress_gather_split_sparse_attn + _finalize_norm_rope_quant_store_sparse_attn   the same with
///                                                              vllm_pool_two_stage
///   _fused_kv_compress_norm_rope_insert_indexer_attn           head 128, ratio 4, index_fp8
///   _fused_kv_compress_norm_rope_insert_indexer_mxfp4_attn     head 128, ratio 4, index_mxfp4
///
/// A token writes when slot >= 0, (position + 1) mod ratio = 0 and kv_slot >= 0; each is independent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/kernels/page_layout.hpp"
#include "reference/kernels/rope_rotation.hpp"
#include "reference/kernels/vllm_compress_pool.hpp"

namespace dsv4::kernels {

/// main_fp8: columns 0..447 through bf16 to e4m3 in blocks of 64, the rotated rest as bf16.
/// index_fp8: all 128 rotated and rounded to bf16, one e4m3 block, float32 scale.
/// index_mxfp4: the same in e2m1 blocks of 32.
enum class CompressStore { main_fp8, index_fp8, index_mxfp4 };

/// rn(rn(x * r) * weight) of a row, r = rsqrt(mean of squares + eps).
using NormRow = void (*)(std::span<const float> row, const float* weight, float eps, float* normed);

/// Triton's, 512 columns on four warps or 128 on one, four to a thread: mean and eps are one
/// fma(sum, 1 / width, eps); r is RSQ (a subnormal argument counts as zero).
void vllm_compress_norm(std::span<const float> row, const float* weight, float eps, float* normed);

/// A kernel and its rules. The rules default to what the compiled kernels do.
struct VllmCompressKernel {
  int head_dim = 512;
  int ratio = 4;  // 4: windows overlap, 8 rows; 128: 128 rows
  CompressStore store = CompressStore::main_fp8;
  PoolColumn pool = vllm_pool_one_stage;
  NormRow norm = vllm_compress_norm;
  Rotate rotate = rotate_fused_cosine;

  bool overlap() const { return ratio == 4; }
  int rows() const { return overlap() ? 2 * ratio : ratio; }
  /// Columns of kv, and of scores, in a state row.
  int state_width() const { return overlap() ? 2 * head_dim : head_dim; }
};

struct VllmCompressInputs {
  std::span<const float> state;  // [blocks, block_rows, 2 * state_width]: kv | score + ape
  std::int64_t block_rows = 0;
  std::span<const std::int32_t> block_table;  // [requests, table_width]
  std::int64_t table_width = 0;
  std::span<const std::int32_t> token_to_req;     // [tokens]
  std::span<const std::int64_t> positions;        // [tokens]
  std::span<const std::int64_t> slot_mapping;     // [tokens]
  std::span<const std::int64_t> kv_slot_mapping;  // [tokens]
  std::span<const float> norm_weight;             // [head_dim], widened where it is bf16
  float eps = 0;
  std::span<const float> cos_sin;  // [positions, 64]
};

/// float32 values between the steps, [tokens, head_dim], of tokens that close a window; zero elsewhere. Of
/// main_fp8 only the last 64 columns are rotated; of the others all (outside RoPE by cosine 1 and sine 0).
struct VllmCompressStages {
  std::vector<float> pooled;
  std::vector<float> normed;
  std::vector<float> rotated;
};

/// Writes the rows of `cache` that the kernel writes; other bytes stay.
VllmCompressStages vllm_compress_norm_rope_insert(const VllmCompressKernel& kernel,
                                                  const VllmCompressInputs& in, const PageLayout& pages,
                                                  std::span<std::uint8_t> cache);

/// The steps on one row, for callers with rows of their own.
/// `row` [head_dim] in place, by the angle of `table_row`.
void vllm_compress_rotate(const VllmCompressKernel& kernel, const float* table_row, float* row);
/// Values and scales of a cache row from the rotated float32 row.
void vllm_compress_store(const VllmCompressKernel& kernel, const float* rotated, std::uint8_t* values,
                         std::uint8_t* scales);

}  // namespace dsv4::kernels
