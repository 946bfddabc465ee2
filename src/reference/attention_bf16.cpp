#include "reference/attention_bf16.hpp"

#include <array>
#include <limits>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "model/geometry.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/sums.hpp"

namespace dsv4::reference {
namespace {

float bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}

}  // namespace

void attention_bf16(const AttentionCall& call, int heads, const float* sink, bool sink_in_max) {
  const float scale = arith::from_bits(0x3D3504F3U);
  const auto length = static_cast<std::int64_t>(call.keys.size());
  std::vector<float> z(call.keys.size());
  for (int head = 0; head < heads; ++head) {
    std::array<float, kHeadDim> query;
    widen_bf16(call.query + std::int64_t{head} * kHeadDim, kHeadDim, query.data());
    const float s = bf16_value(sink[head]);
    float m = sink_in_max ? s : -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (call.keys[i] == nullptr) continue;
      z[i] = bf16_value(bf16_value(dot32(query.data(), call.keys[i], kHeadDim)) * scale);
      m = z[i] > m ? z[i] : m;
    }
    for (std::size_t i = 0; i < z.size(); ++i) {
      z[i] = call.keys[i] == nullptr ? 0.0F : arith::exp(bf16_value(z[i] - m));
    }
    const float sum = sum32(z.data(), length);
    const float den = sum + arith::exp(bf16_value(s - m));
    std::array<float, kHeadDim> out{};
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (call.keys[i] == nullptr) continue;
      const float p = bf16_value(z[i] / den);
      for (std::size_t c = 0; c < out.size(); ++c) out[c] = arith::fma(p, call.keys[i][c], out[c]);
    }
    round_bf16(out.data(), kHeadDim, call.out + std::int64_t{head} * kHeadDim);
    call.lse[head] = m + arith::log(sum);
  }
}

}  // namespace dsv4::reference
