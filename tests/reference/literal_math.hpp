/// Sections 4 to 10 and 12.4 of docs/numerics.md as the text reads, on vectors of f32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/sin_cos.hpp"
#include "model/inputs.hpp"

namespace dsv4::reference::test {

using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

inline float bf16(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
inline float power(int e) {
  return static_cast<float>(std::ldexp(1.0, e));
}

inline float tree(float (&lane)[32]) {
  for (int s = 16; s >= 1; s /= 2) {
    for (int l = 0; l < s; ++l) lane[l] = lane[l] + lane[l + s];
  }
  return lane[0];
}
inline float dot32(const Floats& x, const Floats& y) {
  float lane[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lane[i % 32] = arith::fma(x[i], y[i], lane[i % 32]);
  return tree(lane);
}
inline float sum32(const Floats& x) {
  float lane[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lane[i % 32] = lane[i % 32] + x[i];
  return tree(lane);
}

/// Section 4: codes as numbers, codes as bits, exponents.
struct Quantized {
  Floats values;
  Bytes codes;
  std::vector<int> e;
};
inline Quantized quantize(const Floats& x, int block, bool fp4, bool floor_scale = false,
                          float other_floor = 0) {
  Quantized q;
  const float largest = fp4 ? 6.0F : 448.0F;
  const float floor = other_floor > 0 ? other_floor : fp4 ? 6.0F * power(-126) : 1e-4F;
  for (std::size_t first = 0; first < x.size(); first += block) {
    float a = 0;
    for (int i = 0; i < block; ++i) a = std::fabs(x[first + i]) > a ? std::fabs(x[first + i]) : a;
    float ratio = (floor > a ? floor : a) / largest;
    if (floor_scale) ratio = a / largest > floor ? a / largest : floor;  // axis kv_cache: e4m3_scale_floor
    int e = 0;
    const float fraction = std::frexp(ratio, &e);  // ratio = fraction * 2^e with fraction in [1/2, 1)
    if (fraction == 0.5F) --e;
    if (e > 127) e = 127;
    q.e.push_back(e);
    for (int i = 0; i < block; ++i) {
      const float scaled = static_cast<float>(std::ldexp(static_cast<double>(x[first + i]), -e));
      q.codes.push_back(fp4 ? arith::f32_to_e2m1(scaled) : arith::f32_to_e4m3(scaled));
      q.values.push_back(fp4 ? arith::e2m1_to_f32(q.codes.back()) : arith::e4m3_to_f32(q.codes.back()));
    }
  }
  return q;
}

/// 17.7: like fp4 with the floor 1e-4, but the code is the one below where x lies half-way, and 0 for -0.
inline Quantized quantize_ties_down(const Floats& x) {
  Quantized q = quantize(x, 32, true, false, 1e-4F);
  const float magnitudes[]{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float size = std::fabs(static_cast<float>(std::ldexp(static_cast<double>(x[i]), -q.e[i / 32])));
    int best = 0;
    for (int code = 1; code < 8; ++code) {
      if (std::fabs(size - magnitudes[code]) < std::fabs(size - magnitudes[best])) best = code;
    }
    q.codes[i] = static_cast<std::uint8_t>(best != 0 && x[i] < 0 ? best + 8 : best);
    q.values[i] = q.codes[i] >= 8 ? -magnitudes[best] : magnitudes[best];
  }
  return q;
}

/// 17.6: codes of x * (1 / scale), the scale an f32.
struct ScaledCodes {
  Bytes codes;
  Floats values;
  float scale;
};
inline ScaledCodes quantize_f32_scale(const Floats& x) {
  float a = 1e-4F;
  for (const float value : x) a = std::fabs(value) > a ? std::fabs(value) : a;
  ScaledCodes q{{}, {}, a / 448.0F};
  const float inverse = 1.0F / q.scale;
  for (const float value : x) {
    q.codes.push_back(arith::f32_to_e4m3(value * inverse));
    q.values.push_back(arith::e4m3_to_f32(q.codes.back()));
  }
  return q;
}

/// 17.8: the f16 nearest to x, ties to even, as a value and as bits.
inline float f16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int e = std::max(std::ilogb(x), -14) - 10;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(x), -e)), e);
  return std::fabs(rounded) >= 65536 ? std::copysign(std::numeric_limits<float>::infinity(), x)
                                     : static_cast<float>(rounded);
}
inline std::uint16_t f16_bits(float x) {
  const float y = std::fabs(f16(x));
  const int sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isinf(y)) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (y < power(-14)) return static_cast<std::uint16_t>(sign | static_cast<int>(std::ldexp(y, 24)));
  const int e = std::ilogb(y);
  return static_cast<std::uint16_t>(sign | (e + 15) * 1024 |
                                    (static_cast<int>(std::ldexp(y, 10 - e)) - 1024));
}

/// Section 6, one output of FP8 weights and FP8 activations.
inline float product_fp8(const Matrix& w, std::int64_t n, const Quantized& x) {
  float out = 0;
  const std::int64_t blocks = (w.columns + 127) / 128;
  for (std::int64_t b = 0; b < blocks; ++b) {
    float part = 0;
    for (std::int64_t k = b * 128; k < w.columns && k < (b + 1) * 128; ++k) {
      part = arith::fma(x.values[k], arith::e4m3_to_f32(w.codes[n * w.columns + k]), part);
    }
    const float s = power(x.e[b]) * power(int{w.scales[n / 128 * blocks + b]} - 127);
    out = arith::fma(s, part, out);
  }
  return out;
}
/// Section 6, bf16 weights; FP8 ones become bf16 first. Columns [0, K) of the row against x.
inline float product_bf16(const Matrix& w, std::int64_t n, const Floats& x) {
  float out = 0;
  const std::int64_t blocks = (w.columns + 127) / 128;
  for (std::int64_t b = 0; b < blocks; ++b) {
    float part = 0;
    for (std::int64_t k = b * 128; k < w.columns && k < (b + 1) * 128; ++k) {
      float value = 0;
      if (w.format == Matrix::Format::bf16) {
        value = arith::bf16_to_f32(w.bf16[n * w.columns + k]);
      } else {
        value = bf16(arith::e4m3_to_f32(w.codes[n * w.columns + k]) *
                     power(w.scales[n / 128 * blocks + b] - 127));
      }
      part = arith::fma(x[k], value, part);
    }
    out = arith::fma(1.0F, part, out);
  }
  return out;
}

/// Section 8 without the final bf16; `round_then` is the axis norm_weight.
inline Floats rms(const Floats& x, const std::vector<std::uint16_t>* weight, float eps, bool round_then) {
  const float v = dot32(x, x) / static_cast<float>(x.size()) + eps;
  const float g = 1.0F / std::sqrt(v);
  Floats y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    float scaled = x[i] * g;
    if (round_then) scaled = bf16(scaled);
    y.push_back(weight == nullptr ? scaled : scaled * arith::bf16_to_f32((*weight)[i]));
  }
  return y;
}
inline Floats bf16(Floats x) {
  for (float& value : x) value = bf16(value);
  return x;
}

/// Section 9.
struct Rope {
  float f[32];
  bool bf16_table;
  Rope(const Geometry& geometry, LayerKind kind, bool rounded) : bf16_table(rounded) {
    const bool yarn = kind != LayerKind::swa;
    double t = yarn ? geometry.compress_rope_theta : geometry.rope_theta;
    for (int i = 0; i < 5; ++i) t = std::sqrt(t);
    double p = 1;
    for (int i = 0; i < 32; ++i, p = p * t) {
      f[i] = 1.0F / static_cast<float>(p);
      if (!yarn) continue;
      const float low = 15;
      const float high = 25;  // of base 160000, 65536 positions and turns 32 and 1
      float u = (static_cast<float>(i) - low) / (high - low);
      u = u < 0 ? 0 : u > 1 ? 1 : u;
      const float m = 1.0F - u;
      const float slow = (f[i] / static_cast<float>(geometry.yarn_factor)) * (1.0F - m);
      const float fast = f[i] * m;
      f[i] = slow + fast;
    }
  }
  /// Last 64 dims of a vector, results rounded to bf16 if asked; `direction` is -1 for the inverse.
  void rotate(Floats& x, int position, float direction, bool round = true) const {
    const std::size_t base = x.size() - 64;
    for (int i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(position) * f[i];
      const float c = bf16_table ? bf16(arith::cos(angle)) : arith::cos(angle);
      const float s = (bf16_table ? bf16(arith::sin(angle)) : arith::sin(angle)) * direction;
      const float e = x[base + 2 * i];
      const float o = x[base + 2 * i + 1];
      const float os = o * s;
      const float es = e * s;
      x[base + 2 * i] = arith::fma(e, c, -os);
      x[base + 2 * i + 1] = arith::fma(o, c, es);
      if (round) {
        x[base + 2 * i] = bf16(x[base + 2 * i]);
        x[base + 2 * i + 1] = bf16(x[base + 2 * i + 1]);
      }
    }
  }
};

/// Section 10.
inline void hadamard(Floats& x, bool round = true) {
  for (int h = 1; h <= 64; h *= 2) {
    for (int i = 0; i < 128; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  for (float& value : x) value = value * arith::from_bits(0x3DB504F3);
  for (float& value : x) value = round ? bf16(value) : value;
}

/// 17.3 for one channel.
inline float pool_channel_bf16(const Floats& score, const Floats& kv) {
  float m = -std::numeric_limits<float>::infinity();
  for (const float s : score) m = s > m ? s : m;
  float den = 0;
  for (const float s : score) den = den + arith::exp(s - m);
  float sum = 0;
  for (std::size_t i = 0; i < score.size(); ++i)
    sum = sum + bf16(bf16(arith::exp(score[i] - m) / den) * kv[i]);
  return bf16(sum);
}

/// Section 12.4 for one channel: scores with APE and kv, rows ascending.
inline float pool_channel(const Floats& score, const Floats& kv) {
  float m = -std::numeric_limits<float>::infinity();
  for (const float s : score) m = s > m ? s : m;
  float den = 0;
  float acc = 0;
  for (std::size_t i = 0; i < score.size(); ++i) {
    const float e = arith::exp(score[i] - m);
    den = den + e;
    acc = arith::fma(e, kv[i], acc);
  }
  return acc / den;
}

}  // namespace dsv4::reference::test
