#include "reference/kernels/vllm_index_ops.hpp"

#include <algorithm>
#include <cstddef>

namespace dsv4::kernels {
namespace {

constexpr std::int32_t kNone = -1;

/// A slot of blocks of `rows` in an address space of blocks of `span`.
std::int32_t remapped(std::int32_t slot, std::int32_t rows, std::int32_t span) {
  return slot < 0 ? kNone : slot / rows * span + slot % rows;
}

}  // namespace

VllmGlobalTopk vllm_compute_global_topk(std::span<const std::int32_t> topk_indices, std::int64_t topk,
                                        std::span<const std::int32_t> token_to_req,
                                        std::span<const std::uint8_t> is_valid_token,
                                        const VllmBlockTable& table) {
  VllmGlobalTopk out{std::vector<std::int32_t>(topk_indices.size(), kNone),
                     std::vector<std::int32_t>(token_to_req.size(), 0)};
  for (std::size_t i = 0; i < topk_indices.size(); ++i) {
    if (topk_indices[i] < 0) continue;
    const std::size_t token = i / static_cast<std::size_t>(topk);
    out.indices[i] = table.slot(token_to_req[token], topk_indices[i]);
    if (is_valid_token[token] != 0) ++out.lens[token];
  }
  return out;
}

void vllm_combine_topk_swa(const VllmCombine& in, std::int64_t stride, std::span<std::int32_t> indices,
                           std::span<std::int32_t> lens) {
  const std::int32_t base = in.query_start_loc[0];
  for (std::size_t request = 0; request < in.seq_lens.size(); ++request) {
    const std::int32_t begin = in.query_start_loc[request] - base;
    const std::int32_t end = in.query_start_loc[request + 1] - base;
    const std::int32_t first_row = in.request_rows * static_cast<std::int32_t>(request);
    const std::int32_t gather_start = in.seq_lens[request] - in.gather_lens[request];
    for (std::int32_t token = begin; token < end; ++token) {
      const std::int32_t position = in.seq_lens[request] - (end - token);
      const std::int32_t selected = std::min((position + 1) / in.ratio, in.topk);
      const std::int32_t recent = std::min(position + 1, in.window);
      const std::int32_t* topk = in.topk_indices.data() + token * in.topk_width;
      std::int32_t* row = indices.data() + token * stride;
      for (std::int32_t i = 0; i < selected; ++i) row[i] = topk[i] + first_row;
      for (std::int32_t i = 0; i < recent; ++i) {
        row[selected + i] = first_row + in.compressed_rows + position - recent + 1 - gather_start + i;
      }
      lens[static_cast<std::size_t>(token)] = selected + recent;
    }
  }
}

VllmMixedIndicesOutput vllm_build_mixed_sparse_indices(const VllmMixedIndices& in) {
  const auto tokens = static_cast<std::int64_t>(in.token_to_req.size());
  const std::int64_t columns = (std::max<std::int64_t>(in.topk, in.decode_width) + 3) / 4 * 4;
  const std::int64_t stride = in.window + columns;
  VllmMixedIndicesOutput out{std::vector<std::int32_t>(static_cast<std::size_t>(tokens * stride), kNone),
                             std::vector<std::int32_t>(static_cast<std::size_t>(tokens), in.window)};
  const auto window_slot = [&](std::int32_t slot) {
    return remapped(slot, in.window_table.block_rows, in.window_span);
  };
  const auto compressed_slot = [&](std::int32_t slot) {
    return remapped(slot, in.compressed_table.block_rows, in.compressed_span);
  };
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::int32_t* row = out.indices.data() + token * stride;
    std::int32_t& len = out.lens[static_cast<std::size_t>(token)];
    if (token < in.decode_tokens) {
      const std::int32_t* window = in.decode_window.data() + token * in.window;
      const std::int32_t* compressed = in.decode_compressed.data() + token * in.decode_width;
      std::transform(window, window + in.window, row, window_slot);
      std::transform(compressed, compressed + in.decode_width, row + in.window, compressed_slot);
      if (in.decode_width > 0) len += in.decode_lens[static_cast<std::size_t>(token)];
      continue;
    }
    const auto request = static_cast<std::size_t>(in.token_to_req[static_cast<std::size_t>(token)]);
    const std::int32_t after = in.query_start_loc[request + 1] - static_cast<std::int32_t>(token);
    const std::int32_t position = in.seq_lens[request] - after;
    const std::int32_t recent = std::min(position + 1, in.window);
    const std::int32_t selected = std::min((position + 1) / in.ratio, in.topk);
    const auto table_row = static_cast<std::int64_t>(request);
    for (std::int32_t i = 0; i < recent; ++i) {
      row[i] = window_slot(in.window_table.slot(table_row, position - recent + 1 + i));
    }
    const std::int32_t* topk = in.prefill_topk.data() + (token - in.decode_tokens) * in.prefill_width;
    const std::int64_t present = std::min<std::int64_t>(selected, in.prefill_width);
    for (std::int64_t i = 0; i < present; ++i) {
      if (topk[i] >= 0) row[in.window + i] = compressed_slot(in.compressed_table.slot(table_row, topk[i]));
    }
    len += selected;
  }
  return out;
}

}  // namespace dsv4::kernels
