#include "reference/linear.hpp"

#include <algorithm>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/fma.hpp"
#include "arith/ue8m0.hpp"
#include "model/error.hpp"

namespace dsv4::reference {
namespace {

constexpr std::int64_t kBlock = 128;

std::int64_t blocks(std::int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

float weight_value(const Matrix& w, std::int64_t n, std::int64_t k, bool scaled) {
  const auto at = static_cast<std::size_t>(n * w.columns + k);
  if (w.format == Matrix::Format::bf16) return arith::bf16_to_f32(w.bf16[at]);
  const float code = arith::e4m3_to_f32(w.codes[at]);
  if (scaled) return code;
  const auto scale = static_cast<std::size_t>(n / kBlock * blocks(w.columns) + k / kBlock);
  return arith::bf16_to_f32(arith::f32_to_bf16(code * arith::ue8m0_to_f32(w.scales[scale])));
}

void check_call(const Matrix& w, OutputRange range, const Activations& x) {
  require(range.first >= 0 && range.count >= 0 && range.first + range.count <= w.rows,
          "linear: outputs outside the weight matrix");
  require((x.codes != nullptr) != (x.bf16 != nullptr), "linear: activations are either codes or bf16");
  require(x.codes == nullptr || (x.scales != nullptr && w.format == Matrix::Format::fp8_block128),
          "linear: FP8 activations need scales and FP8 weights");
}

template <class Store>
void product(const Matrix& w, OutputRange range, const Activations& x, std::int64_t tokens,
             const Store& store) {
  check_call(w, range, x);
  const bool scaled = x.codes != nullptr;
  const std::int64_t stride = x.stride != 0 ? x.stride : w.columns;
  const std::int64_t scale_stride = x.scale_stride != 0 ? x.scale_stride : blocks(w.columns);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t n = range.first + i;
    for (std::int64_t t = 0; t < tokens; ++t) {
      float sum = 0;
      for (std::int64_t begin = 0; begin < w.columns; begin += kBlock) {
        const std::int64_t end = std::min(w.columns, begin + kBlock);
        float block = 0;
        for (std::int64_t k = begin; k < end; ++k) {
          const float a = scaled ? arith::e4m3_to_f32(x.codes[t * stride + k])
                                 : arith::bf16_to_f32(x.bf16[t * stride + k]);
          block = arith::fma(a, weight_value(w, n, k, scaled), block);
        }
        float scale = 1.0F;
        if (scaled) {
          const auto at = static_cast<std::size_t>(n / kBlock * blocks(w.columns) + begin / kBlock);
          scale = arith::ue8m0_to_f32(x.scales[t * scale_stride + begin / kBlock]) *
                  arith::ue8m0_to_f32(w.scales[at]);
        }
        sum = arith::fma(scale, block, sum);
      }
      store(t, i, sum);
    }
  }
}

}  // namespace

OutputRange all_outputs(const Matrix& weights) {
  return {0, weights.rows};
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            float* out, std::int64_t out_stride) {
  product(weights, range, input, tokens,
          [=](std::int64_t t, std::int64_t i, float value) { out[t * out_stride + i] = value; });
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            std::uint16_t* out, std::int64_t out_stride) {
  product(weights, range, input, tokens, [=](std::int64_t t, std::int64_t i, float value) {
    out[t * out_stride + i] = arith::f32_to_bf16(value);
  });
}

}  // namespace dsv4::reference
