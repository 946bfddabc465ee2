#include "reference/rms_norm.hpp"

#include <cmath>
#include <memory>

#include "arith/bf16.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

/// Memory for a row of floats: on the stack for a head, whose norm takes less time than a visit to the heap.
class RowValues {
 public:
  explicit RowValues(std::int64_t n) {
    if (n > kOnStack) heap_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
  }
  float* data() { return heap_ ? heap_.get() : stack_; }

 private:
  static constexpr std::int64_t kOnStack = 1024;
  float stack_[kOnStack];
  std::unique_ptr<float[]> heap_;
};

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

/// 1 / sqrt(S / n + eps), each operation rounded once.
float norm_factor(const float* x, std::int64_t n, float eps) {
  const float mean = simd::kernels().dot32(x, x, n) / static_cast<float>(n);
  return 1.0F / std::sqrt(mean + eps);
}

/// The factor of section 18: every intermediate is a bf16 value. `squares` is scratch memory of n values.
float bf16_factor(const float* x, std::int64_t n, float eps, float* squares) {
  simd::kernels().squares_bf16(x, n, squares);
  const float mean = to_bf16_value(simd::kernels().sum32(squares, n) / static_cast<float>(n));
  return to_bf16_value(1.0F / std::sqrt(to_bf16_value(mean + eps)));
}

}  // namespace

void rms_norm(const float* x, std::int64_t n, const std::uint16_t* weight, float eps, NormWeight order,
              float* out) {
  simd::kernels().scale_row(x, n, norm_factor(x, n, eps), order == NormWeight::round_then, weight, out);
}

void rms_norm(const std::uint16_t* x, std::int64_t n, const std::uint16_t* weight, float eps,
              NormWeight order, std::uint16_t* out) {
  RowValues values(n);
  simd::kernels().widen_bf16(x, n, values.data());
  rms_norm(values.data(), n, weight, eps, order, values.data());
  simd::kernels().round_bf16(values.data(), n, out);
}

void head_norm(const std::uint16_t* x, std::int64_t n, float eps, HeadNorm mode, std::uint16_t* out) {
  const simd::Kernels& kernels = simd::kernels();
  RowValues memory(2 * n);
  float* const values = memory.data();
  float* const scratch = values + n;
  kernels.widen_bf16(x, n, values);
  float factor = 0;
  switch (mode) {
    case HeadNorm::f32:
      factor = norm_factor(values, n, eps);
      break;
    case HeadNorm::bf16:
      factor = bf16_factor(values, n, eps, scratch);
      break;
    case HeadNorm::factor_bf16:
      factor = to_bf16_value(norm_factor(values, n, eps));
      break;
  }
  kernels.scale_row(values, n, factor, false, nullptr, values);
  kernels.round_bf16(values, n, out);
}

}  // namespace dsv4::reference
