/// log2f of NVIDIA's libdevice: a polynomial on fused multiply-adds, not the special-function unit.
/// contracts/vllm.md section 1.3 (coefficients as in libdevice.10.bc); docs/kernel-models.md says where its
/// round-up to an integer is not that of the exact logarithm.
#pragma once

namespace dsv4::kernels {

/// The form that keeps subnormals. The flushing form gives the same bits for every normal argument: with a
/// normal argument no operand and no result on the way is subnormal.
float libdevice_log2(float a);

}  // namespace dsv4::kernels
