#include "reference/attention.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "model/geometry.hpp"
#include "reference/sums.hpp"

namespace dsv4::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kScaleBits = 0x3D3504F3;  // f32(512^-0.5)
constexpr std::size_t kOnlineBlock = 64;

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
float max_of(float m, float x) {
  return x > m ? x : m;
}

/// One head while its keys are taken in.
struct Head {
  const float* query;
  float sink;
  std::vector<float> z;  ///< by list index
  std::vector<float> e;  ///< by list index, +0 where invalid (adding +0 to a lane changes nothing)
  std::vector<float> o = std::vector<float>(kHeadDim);
  float m = -kInfinity;
  float sum = 0;
};

void logits(Head& head, std::span<const float* const> keys) {
  const float scale = arith::from_bits(kScaleBits);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) head.z[i] = dot32(head.query, keys[i], kHeadDim) * scale;
  }
}

void two_pass(Head& head, std::span<const float* const> keys, bool sink_in_max) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) head.m = max_of(head.m, head.z[i]);
  }
  if (sink_in_max) head.m = max_of(head.m, head.sink);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) head.e[i] = arith::exp(head.z[i] - head.m);
  }
  head.sum = sum32(head.e.data(), static_cast<std::int64_t>(head.e.size()));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == nullptr) continue;
    for (std::size_t c = 0; c < kHeadDim; ++c) head.o[c] = arith::fma(head.e[i], keys[i][c], head.o[c]);
  }
}

void online64(Head& head, std::span<const float* const> keys, bool sink_in_max) {
  if (sink_in_max) head.m = max_of(head.m, head.sink);
  for (std::size_t begin = 0; begin < keys.size(); begin += kOnlineBlock) {
    const std::size_t end = std::min(keys.size(), begin + kOnlineBlock);
    float m = head.m;
    for (std::size_t i = begin; i < end; ++i) {
      if (keys[i] != nullptr) m = max_of(m, head.z[i]);
    }
    const float f = head.m == -kInfinity ? 0.0F : arith::exp(head.m - m);
    for (std::size_t i = begin; i < end; ++i) {
      if (keys[i] != nullptr) head.e[i] = arith::exp(head.z[i] - m);
    }
    head.sum = arith::fma(head.sum, f, sum32(head.e.data() + begin, static_cast<std::int64_t>(end - begin)));
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      float o = head.o[c] * f;
      for (std::size_t i = begin; i < end; ++i) {
        if (keys[i] != nullptr) o = arith::fma(to_bf16_value(head.e[i]), keys[i][c], o);
      }
      head.o[c] = o;
    }
    head.m = m;
  }
}

}  // namespace

AttentionMode attention_mode(const Profile& profile) {
  return {profile.get<Softmax>(), profile.get<SinkInMax>(), profile.get<EmptyLse>()};
}

void attention(const AttentionCall& call, int heads, const float* sink, const AttentionMode& mode) {
  const bool empty =
      std::all_of(call.keys.begin(), call.keys.end(), [](const float* key) { return key == nullptr; });
  for (int h = 0; h < heads; ++h) {
    std::uint16_t* out = call.out + static_cast<std::int64_t>(h) * kHeadDim;
    if (empty) {
      std::fill(out, out + kHeadDim, std::uint16_t{0});
      call.lse[h] = mode.empty_lse == EmptyLse::plus_inf ? kInfinity : -kInfinity;
      continue;
    }
    float query[kHeadDim];
    for (int c = 0; c < kHeadDim; ++c) query[c] = arith::bf16_to_f32(call.query[h * kHeadDim + c]);
    Head head{query, sink[h], std::vector<float>(call.keys.size()), std::vector<float>(call.keys.size())};
    logits(head, call.keys);
    const bool sink_in_max = mode.sink_in_max == SinkInMax::yes;
    if (mode.softmax == Softmax::two_pass) {
      two_pass(head, call.keys, sink_in_max);
    } else {
      online64(head, call.keys, sink_in_max);
    }
    const float den = head.sum + arith::exp(head.sink - head.m);
    for (std::size_t c = 0; c < kHeadDim; ++c) out[c] = arith::f32_to_bf16(head.o[c] / den);
    call.lse[h] = head.m + arith::log(head.sum);
  }
}

void attention(std::span<const AttentionCall> calls, int heads, const float* sink,
               const AttentionMode& mode) {
  const auto count = static_cast<std::int64_t>(calls.size());
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < count; ++i) attention(calls[static_cast<std::size_t>(i)], heads, sink, mode);
}

}  // namespace dsv4::reference
