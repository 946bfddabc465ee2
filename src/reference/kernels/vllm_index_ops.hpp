/// vLLM's index builders (Triton, commit 5ac2684976ee; integers only): local entry to slot, the compressed
/// selection joined with the sliding window, the matrix of a mixed batch. Contract: contracts/vllm.md
/// section 13. Index -1 means none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsv4::kernels {

/// A block table [requests, width] and the rows of its blocks.
struct VllmBlockTable {
  std::span<const std::int32_t> blocks;
  std::int64_t width = 0;
  std::int32_t block_rows = 0;

  std::int32_t slot(std::int64_t request, std::int32_t index) const {
    const auto at = static_cast<std::size_t>(request * width + index / block_rows);
    return blocks[at] * block_rows + index % block_rows;
  }
};

/// `_compute_global_topk_indices_and_lens_kernel`.
struct VllmGlobalTopk {
  std::vector<std::int32_t> indices;  // [tokens, topk]: slots in the order of the input, holes in place
  std::vector<std::int32_t> lens;     // [tokens]: entries that are not -1; 0 for tokens that are not valid
};
VllmGlobalTopk vllm_compute_global_topk(std::span<const std::int32_t> topk_indices, std::int64_t topk,
                                        std::span<const std::int32_t> token_to_req,
                                        std::span<const std::uint8_t> is_valid_token,
                                        const VllmBlockTable& table);

/// `CombineTopkSwaIndicesKernel`: rows of a gathered buffer of `request_rows` per request, its first
/// `compressed_rows` compressed entries, then the window.
struct VllmCombine {
  std::span<const std::int32_t> topk_indices;  // [tokens, topk_width]
  std::int64_t topk_width = 0;
  std::span<const std::int32_t> query_start_loc;  // [requests + 1]; tokens count from its first value
  std::span<const std::int32_t> seq_lens;         // [requests]
  std::span<const std::int32_t> gather_lens;      // [requests]
  std::int32_t window = 0;
  std::int32_t ratio = 0;
  std::int32_t topk = 0;
  std::int32_t request_rows = 0;     // M
  std::int32_t compressed_rows = 0;  // N
};
/// `indices` [tokens, stride] and `lens` [tokens]. A row's first len values are written, the rest stays.
void vllm_combine_topk_swa(const VllmCombine& in, std::int64_t stride, std::span<std::int32_t> indices,
                           std::span<std::int32_t> lens);

/// `_build_flashinfer_mixed_sparse_indices_kernel`: decode tokens first.
struct VllmMixedIndices {
  std::int32_t window = 0;
  std::int32_t ratio = 0;
  std::int32_t topk = 0;
  std::int64_t decode_tokens = 0;
  std::span<const std::int32_t> decode_window;      // slots [decode tokens, window]
  std::span<const std::int32_t> decode_compressed;  // slots [decode tokens, decode_width]
  std::int64_t decode_width = 0;
  std::span<const std::int32_t> decode_lens;   // [decode tokens]
  std::span<const std::int32_t> prefill_topk;  // local [prefill tokens, prefill_width]
  std::int64_t prefill_width = 0;
  std::span<const std::int32_t> query_start_loc;  // [requests + 1]
  std::span<const std::int32_t> seq_lens;         // [requests]
  std::span<const std::int32_t> token_to_req;     // [tokens]
  VllmBlockTable window_table;
  VllmBlockTable compressed_table;
  /// Slots of a block in the address space of the output; equal to block_rows where nothing is remapped.
  std::int32_t window_span = 0;
  std::int32_t compressed_span = 0;
};
struct VllmMixedIndicesOutput {
  std::vector<std::int32_t> indices;  // [tokens, window + wider top-k rounded up to 4]
  std::vector<std::int32_t> lens;     // [tokens]: window + compressed entries
};
VllmMixedIndicesOutput vllm_build_mixed_sparse_indices(const VllmMixedIndices& in);

}  // namespace dsv4::kernels
