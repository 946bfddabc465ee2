/// "bhr,hdr->bhd" in FP8, the first half of the output projection: DeepGEMM 2.6.1 (54e226124093),
/// sm90_fp8_gemm_1d2d batched over h. docs/kernel-models.md, DeepGEMM. Follows the kernel's source and
/// machine code; no recording of this kernel exists, so that its bits have not been held against hardware.
#pragma once

#include <cstdint>

namespace dsv4::kernels {

/// What the compiler chose (nvcc 13.0.88).
struct DeepgemmEinsumRules {
  /// A block's dot product times its scale joins the sum in one rounding. False: the product is rounded
  /// first.
  bool promotion_fused = true;
};

struct DeepgemmFp8Einsum {
  static constexpr int kBlock = 128;  ///< of r and of d

  std::int64_t b = 0, h = 0, r = 0, d = 0;
  const std::uint8_t* x = nullptr;  ///< e4m3 [b, h, r]
  const float* x_scales = nullptr;  ///< [b, h, ceil(r / 128)]
  const std::uint8_t* w = nullptr;  ///< e4m3 [h, d, r]
  const float* w_scales = nullptr;  ///< [h, ceil(d / 128), ceil(r / 128)]
  DeepgemmEinsumRules rules{};
};

/// out bf16 [b, h, d].
void deepgemm_fp8_einsum(const DeepgemmFp8Einsum& in, std::uint16_t* out);

}  // namespace dsv4::kernels
