/// Index scores of prefill: DeepGEMM 2.6.1 (54e226124093), sm90_fp8_mqa_logits, with its cleaning kernel.
/// docs/kernel-models.md, DeepGEMM. Bits are those of the recorded kernel for 32 and 64 heads, float32 and
/// bf16 logits.
#pragma once

#include <cstdint>

#include "reference/kernels/deepgemm_logit.hpp"

namespace dsv4::kernels {

struct DeepgemmMqaLogits {
  std::int64_t tokens = 0;
  std::int64_t keys = 0;
  int heads = 64;                           ///< 32 or 64
  int dim = 128;                            ///< 32, 64 or 128
  const std::uint8_t* q = nullptr;          ///< e4m3 [tokens, heads, dim]
  const std::uint8_t* kv = nullptr;         ///< e4m3 [keys, dim]
  const float* kv_scales = nullptr;         ///< [keys]
  const float* weights = nullptr;           ///< [tokens, heads]
  const std::int32_t* key_start = nullptr;  ///< [tokens]: token i scores keys [key_start, key_end)
  const std::int32_t* key_end = nullptr;
  bool clean = false;  ///< -inf in the other columns of [0, keys)
  bool compact =
      false;  ///< column j of a row is key key_start + j ("compressed" in the library); not with clean
  DeepgemmRules rules{};
};

/// Rows of `stride` elements. Writes exactly the elements that the kernel defines: a token's own range, and
/// with `clean` the rest of its `keys` columns. The kernel also spills into other columns of the 256-key
/// tiles that it works on; those values mean nothing and are left alone here.
void deepgemm_mqa_logits(const DeepgemmMqaLogits& in, float* logits, std::int64_t stride);
/// bf16 logits: the float32 result rounded once.
void deepgemm_mqa_logits(const DeepgemmMqaLogits& in, std::uint16_t* logits, std::int64_t stride);

}  // namespace dsv4::kernels
