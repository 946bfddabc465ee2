/// Index scores of decode over a paged cache: DeepGEMM 2.6.1 (54e226124093), sm90_fp8_paged_mqa_logits.
/// docs/kernel-models.md, DeepGEMM. Bits are those of the recorded kernel for 64 heads, one and two query
/// tokens a request, float32 logits.
#pragma once

#include <cstdint>

#include "reference/kernels/deepgemm_logit.hpp"

namespace dsv4::kernels {

struct DeepgemmPagedMqaLogits {
  static constexpr int kPageRows = 64;

  std::int64_t requests = 0;
  int next_n = 1;                   ///< query tokens of a request; the kernel knows 1 and 2
  int heads = 64;                   ///< 32 or 64
  int dim = 128;                    ///< 32, 64 or 128
  const std::uint8_t* q = nullptr;  ///< e4m3 [requests, next_n, heads, dim]
  /// Pages `page_stride` bytes apart, each 64 * dim bytes of e4m3, then 64 float32 scales.
  const std::uint8_t* cache = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t pages = 0;
  const float* weights = nullptr;              ///< [requests * next_n, heads]
  const std::int32_t* context_lens = nullptr;  ///< [requests, next_n]: keys of each query token
  const std::int32_t* block_table = nullptr;   ///< [requests, table_width]
  std::int64_t table_width = 0;
  DeepgemmRules rules{};
};

/// Row b * next_n + n, `stride` elements apart. Writes columns below the token's own context length; the
/// kernel also writes columns behind it, up to a multiple of 256 of the request's last length, that mean
/// nothing. How the kernel spreads the work over processors changes no value.
void deepgemm_paged_mqa_logits(const DeepgemmPagedMqaLogits& in, float* logits, std::int64_t stride);
/// bf16 logits: the float32 result rounded once.
void deepgemm_paged_mqa_logits(const DeepgemmPagedMqaLogits& in, std::uint16_t* logits, std::int64_t stride);

}  // namespace dsv4::kernels
