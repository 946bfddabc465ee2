/// Kernels that go along rows. Plain loops over straight-line arithmetic that the compiler vectorises; every
/// rounding step is written out. Sections 3, 4, 5, 8, 9, 10, 12.
#pragma once

#include <stdint.h>
#include <string.h>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/simd/vec.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef uint16_t FewHalves __attribute__((vector_size(2 * kWidth)));
typedef uint8_t FewBytes __attribute__((vector_size(kWidth)));

DSV4_TILE float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
DSV4_TILE float max_of(float m, float x) {
  return x > m ? x : m;
}
DSV4_TILE float minus_infinity() {
  return arith::from_bits(0xFF800000U);
}

/// a[l] += a[l + s], s = 16 .. 1.
DSV4_TILE float lane_tree(float* a) {
  for (int s = kLanes / 2; s > 0; s /= 2) {
    for (int l = 0; l < s; ++l) a[l] = a[l] + a[l + s];
  }
  return a[0];
}

[[maybe_unused]] static float dot32(const float* x, const float* y, int64_t n) {
  float a[kLanes] = {};
  int64_t i = 0;
  if (n >= kLanes) {
    Vec lanes[kLanes / kWidth] = {};
    for (; i + kLanes <= n; i += kLanes) {
      for (int v = 0; v < kLanes / kWidth; ++v) {
        lanes[v] = fma(load(x + i + v * kWidth), load(y + i + v * kWidth), lanes[v]);
      }
    }
    for (int v = 0; v < kLanes / kWidth; ++v) store(a + v * kWidth, lanes[v]);
  }
  for (int l = 0; i < n; ++i, ++l) a[l] = arith::fma(x[i], y[i], a[l]);
  return lane_tree(a);
}

[[maybe_unused]] static float sum32(const float* x, int64_t n) {
  float a[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) a[l] = a[l] + x[i + l];
  }
  for (int l = 0; i < n; ++i, ++l) a[l] = a[l] + x[i];
  return lane_tree(a);
}

[[maybe_unused]] static void widen_bf16(const uint16_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::bf16_to_f32(in[i]);
}

/// arith::f32_to_bf16, written for a vector.
DSV4_TILE Words bf16_of(Vec x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return (bits & 0x7FFFFFFFU) > 0x7F800000U ? Words{} + 0x7FC0U : rounded;
}

/// Rounded to bf16, as floats.
DSV4_TILE Vec to_bf16_values(Vec x) {
  return reinterpret_cast<Vec>(bf16_of(x) << 16);
}

[[maybe_unused]] static void round_bf16(const float* in, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const FewHalves few = __builtin_convertvector(bf16_of(load(in + i)), FewHalves);
    memcpy(out + i, &few, sizeof(few));
  }
  for (; i < n; ++i) out[i] = arith::f32_to_bf16(in[i]);
}

[[maybe_unused]] static void decode_e2m1(const uint8_t* codes, int64_t n, float scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::e2m1_to_f32(codes[i]) * scale;
}

/// Magnitudes of floats order as their bits do, so that the maximum is taken on integers; a NaN, above
/// infinity there, never replaces a number (section 2).
[[maybe_unused]] static float amax(const float* x, int64_t n) {
  Words lanes = {};
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Words magnitude = reinterpret_cast<Words>(load(x + i)) & 0x7FFFFFFFU;
    const Words number = magnitude > 0x7F800000U ? Words{} : magnitude;
    lanes = number > lanes ? number : lanes;
  }
  uint32_t m = 0;
  for (int lane = 0; lane < kWidth; ++lane) m = lanes[lane] > m ? lanes[lane] : m;
  for (; i < n; ++i) {
    const uint32_t magnitude = arith::to_bits(x[i]) & 0x7FFFFFFFU;
    const uint32_t number = magnitude > 0x7F800000U ? 0U : magnitude;
    m = number > m ? number : m;
  }
  return arith::from_bits(m);
}

/// arith::f32_to_e4m3, written for a vector: compilers leave its loop scalar where the result is a byte.
DSV4_TILE Words codes_of(Vec x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words sign = (bits >> 24) & 0x80U;
  const Words absolute = bits & 0x7FFFFFFFU;
  const Words clamped = absolute > 0x43E00000U ? Words{} + 0x43E00000U : absolute;
  const Words normal = ((clamped + 0x7FFFFU + ((clamped >> 20) & 1U)) >> 20) - ((127U - 7U) << 3);
  const Words small = reinterpret_cast<Words>(reinterpret_cast<Vec>(clamped) + 16384.0F) - 0x46800000U;
  const Words finite = (clamped < 0x3C800000U ? small : normal) | sign;
  return absolute > 0x7F800000U ? Words{} + 0x7FU : finite;
}

[[maybe_unused]] static void encode_e4m3(const float* x, int64_t n, float inverse, uint8_t* codes) {
  const Vec factor = broadcast(inverse);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const FewBytes few = __builtin_convertvector(codes_of(load(x + i) * factor), FewBytes);
    memcpy(codes + i, &few, sizeof(few));
  }
  for (; i < n; ++i) codes[i] = arith::f32_to_e4m3(x[i] * inverse);
}

[[maybe_unused]] static void encode_e2m1(const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = arith::f32_to_e2m1(x[i] * inverse);
}

[[maybe_unused]] static void scale_row(const float* x, int64_t n, float factor, bool round_first,
                                       const uint16_t* weight, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
  if (round_first) {
    for (int64_t i = 0; i < n; ++i) out[i] = to_bf16_value(out[i]);
  }
  if (weight != nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = out[i] * arith::bf16_to_f32(weight[i]);
  }
}

[[maybe_unused]] static void squares_bf16(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_bf16_value(x[i] * x[i]);
}

[[maybe_unused]] static void rotate(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float even = x[2 * i];
    const float odd = x[2 * i + 1];
    x[2 * i] = arith::fma(even, cos[i], -(odd * sin[i]));
    x[2 * i + 1] = arith::fma(odd, cos[i], even * sin[i]);
  }
}

template <int kStep>
DSV4_TILE void butterfly(float* x) {
  float y[kIndexKeyDim];
  for (int group = 0; group < kIndexKeyDim; group += 2 * kStep) {
    for (int i = 0; i < kStep; ++i) {
      const float a = x[group + i];
      const float b = x[group + kStep + i];
      y[group + i] = a + b;
      y[group + kStep + i] = a - b;
    }
  }
  for (int i = 0; i < kIndexKeyDim; ++i) x[i] = y[i];
}

[[maybe_unused]] static void hadamard128(float* x) {
  butterfly<1>(x);
  butterfly<2>(x);
  butterfly<4>(x);
  butterfly<8>(x);
  butterfly<16>(x);
  butterfly<32>(x);
  butterfly<64>(x);
  const float scale = arith::from_bits(0x3DB504F3U);  // f32(128^-0.5)
  for (int i = 0; i < kIndexKeyDim; ++i) x[i] = x[i] * scale;
}

/// e = exp(x - m), one by one. A loop of its own vectorises, inside a larger body it may not.
[[gnu::noinline, maybe_unused]] static void exp_difference(const float* x, const float* m, int64_t n,
                                                           float* __restrict e) {
  for (int64_t i = 0; i < n; ++i) e[i] = arith::exp(x[i] - m[i]);
}

[[gnu::noinline, maybe_unused]] static void exp_in_place(float* e, const float* __restrict m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) e[i] = arith::exp(e[i] - m[i]);
}

/// Channels of a window at a time, so that the running values stay in the first cache.
constexpr int kPoolChannels = 128;

[[maybe_unused]] static void pool(const float* const* kv, const float* const* score, int64_t rows, int64_t d,
                                  float* pooled) {
  float m[kPoolChannels];
  float e[kPoolChannels];
  float den[kPoolChannels];
  float acc[kPoolChannels];
  for (int64_t begin = 0; begin < d; begin += kPoolChannels) {
    const int64_t width = d - begin < kPoolChannels ? d - begin : kPoolChannels;
    for (int64_t c = 0; c < width; ++c) {
      m[c] = minus_infinity();
      den[c] = 0.0F;
      acc[c] = 0.0F;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* s = score[r] + begin;
      for (int64_t c = 0; c < width; ++c) m[c] = max_of(m[c], s[c]);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* v = kv[r] + begin;
      exp_difference(score[r] + begin, m, width, e);
      for (int64_t c = 0; c < width; ++c) den[c] = den[c] + e[c];
      for (int64_t c = 0; c < width; ++c) acc[c] = arith::fma(e[c], v[c], acc[c]);
    }
    for (int64_t c = 0; c < width; ++c) pooled[begin + c] = acc[c] / den[c];
  }
}

/// A step of the recurrence behind the first token of a window. max() of section 2 starts from -inf: a NaN on
/// either side loses to a number.
[[maybe_unused]] static void online_update(const float* kv, const float* score, int64_t d, float* max,
                                           float* sum, float* weighted) {
  float x[kPoolChannels];
  float f[kPoolChannels];
  float g[kPoolChannels];
  for (int64_t begin = 0; begin < d; begin += kPoolChannels) {
    const int64_t width = d - begin < kPoolChannels ? d - begin : kPoolChannels;
    float* const m = max + begin;
    float* const t = sum + begin;
    float* const a = weighted + begin;
    const float* const s = score + begin;
    const float* const v = kv + begin;
    for (int64_t c = 0; c < width; ++c) x[c] = max_of(max_of(minus_infinity(), m[c]), s[c]);
    exp_difference(m, x, width, f);
    exp_difference(s, x, width, g);
    for (int64_t c = 0; c < width; ++c) t[c] = arith::fma(t[c], f[c], g[c]);
    for (int64_t c = 0; c < width; ++c) a[c] = arith::fma(a[c], f[c], v[c] * g[c]);
    for (int64_t c = 0; c < width; ++c) m[c] = x[c];
  }
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
