/// vLLM `quantize_and_insert_k_kernel` and `_dequantize_and_gather_k_kernel` (Triton, commit 5ac2684976ee):
/// bf16 keys into FP8 pages and back. Contract: contracts/vllm.md sections 7.1 and 14.
#pragma once

#include <cstdint>
#include <span>

#include "reference/kernels/page_layout.hpp"

namespace dsv4::kernels {

inline constexpr int kVllmKeyDim = 512;

/// `k` bf16 [tokens, 512] to the slots of `slot_mapping` [tokens] (-1: skipped). Columns 0..447 in blocks of
/// 64: div.full by 448 for the scale and by the scale for the codes; the rest is copied.
void vllm_quantize_and_insert_k(std::span<const std::uint16_t> k, std::span<const std::int64_t> slot_mapping,
                                const PageLayout& pages, std::span<std::uint8_t> cache);

struct VllmGather {
  std::span<const std::int32_t> seq_lens;     // [requests]
  std::span<const std::int32_t> gather_lens;  // [requests], or empty: everything
  std::span<const std::int32_t> block_table;  // [requests, table_width]
  std::int64_t table_width = 0;
  std::int64_t offset = 0;  // first row written
  std::int64_t out_rows = 0;
};

/// The last gather_len tokens of every request to rows offset.. of `out` bf16 [requests, out_rows, 512]: code
/// times ex2(byte - 127), a subnormal scale being zero, rounded to bf16.
void vllm_dequantize_and_gather_k(const VllmGather& gather, const PageLayout& pages,
                                  std::span<const std::uint8_t> cache, std::span<std::uint16_t> out);

}  // namespace dsv4::kernels
