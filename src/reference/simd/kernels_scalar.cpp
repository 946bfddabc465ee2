// The same functions as plain scalar loops, as docs/numerics.md states them: the baseline that benchmarks
// compare with. Compiled without optimisation beyond -O1, with fused multiply-add where the machine has it.
#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference::simd {
namespace {

float to_bf16_value(float x) {
  return arith::bf16_to_f32(arith::f32_to_bf16(x));
}
float max_of(float m, float x) {
  return x > m ? x : m;
}
float minus_infinity() {
  return arith::from_bits(0xFF800000U);
}

float lane_tree(float* a) {
  for (int s = kLanes / 2; s > 0; s /= 2) {
    for (int l = 0; l < s; ++l) a[l] = a[l] + a[l + s];
  }
  return a[0];
}

float dot32(const float* x, const float* y, int64_t n) {
  float a[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) a[i % kLanes] = arith::fma(x[i], y[i], a[i % kLanes]);
  return lane_tree(a);
}

float sum32(const float* x, int64_t n) {
  float a[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) a[i % kLanes] = a[i % kLanes] + x[i];
  return lane_tree(a);
}

void widen_bf16(const uint16_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::bf16_to_f32(in[i]);
}

void round_bf16(const float* in, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::f32_to_bf16(in[i]);
}

void decode_e4m3(const uint8_t* codes, int64_t n, float scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::e4m3_to_f32(codes[i]) * scale;
}

void decode_e2m1(const uint8_t* codes, int64_t n, float scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = arith::e2m1_to_f32(codes[i]) * scale;
}

float amax(const float* x, int64_t n) {
  float m = 0.0F;
  for (int64_t i = 0; i < n; ++i) m = max_of(m, arith::from_bits(arith::to_bits(x[i]) & 0x7FFFFFFFU));
  return m;
}

void encode_e4m3(const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = arith::f32_to_e4m3(x[i] * inverse);
}

void encode_e2m1(const float* x, int64_t n, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = arith::f32_to_e2m1(x[i] * inverse);
}

void scale_row(const float* x, int64_t n, float factor, bool round_first, const uint16_t* weight,
               float* out) {
  for (int64_t i = 0; i < n; ++i) {
    float y = x[i] * factor;
    if (round_first) y = to_bf16_value(y);
    if (weight != nullptr) y = y * arith::bf16_to_f32(weight[i]);
    out[i] = y;
  }
}

void squares_bf16(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_bf16_value(x[i] * x[i]);
}

void rotate(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float even = x[2 * i];
    const float odd = x[2 * i + 1];
    x[2 * i] = arith::fma(even, cos[i], -(odd * sin[i]));
    x[2 * i + 1] = arith::fma(odd, cos[i], even * sin[i]);
  }
}

void hadamard128(float* x) {
  for (int h = 1; h < kIndexKeyDim; h *= 2) {
    for (int i = 0; i < kIndexKeyDim; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  for (int i = 0; i < kIndexKeyDim; ++i) x[i] = x[i] * arith::from_bits(0x3DB504F3U);
}

void pool(const float* const* kv, const float* const* score, int64_t rows, int64_t d, float* pooled) {
  for (int64_t c = 0; c < d; ++c) {
    float m = minus_infinity();
    for (int64_t r = 0; r < rows; ++r) m = max_of(m, score[r][c]);
    float den = 0.0F;
    float acc = 0.0F;
    for (int64_t r = 0; r < rows; ++r) {
      const float e = arith::exp(score[r][c] - m);
      den = den + e;
      acc = arith::fma(e, kv[r][c], acc);
    }
    pooled[c] = acc / den;
  }
}

void online_update(const float* kv, const float* score, int64_t d, float* max, float* sum, float* weighted) {
  for (int64_t c = 0; c < d; ++c) {
    const float x = max_of(max_of(minus_infinity(), max[c]), score[c]);
    const float f = arith::exp(max[c] - x);
    const float g = arith::exp(score[c] - x);
    sum[c] = arith::fma(sum[c], f, g);
    weighted[c] = arith::fma(weighted[c], f, kv[c] * g);
    max[c] = x;
  }
}

float weight_value(const LinearTask& task, int64_t n, int64_t k) {
  if (task.bf16 != nullptr) return arith::bf16_to_f32(task.bf16[n * task.columns + k]);
  const float code = arith::e4m3_to_f32(task.codes[n * task.columns + k]);
  return task.dequantize ? to_bf16_value(code * task.w_scales[k / kSumBlock * task.outputs + n]) : code;
}

void linear(const LinearTask& task) {
  for (int64_t n = 0; n < task.outputs; ++n) {
    for (int64_t t = 0; t < task.tokens; ++t) {
      float out = 0.0F;
      for (int64_t begin = 0; begin < task.columns; begin += kSumBlock) {
        const int64_t block = begin / kSumBlock;
        const float* x = task.x + (block * task.tokens + t) * kSumBlock;
        float b = 0.0F;
        for (int64_t k = begin; k < task.columns && k < begin + kSumBlock; ++k) {
          b = arith::fma(x[k - begin], weight_value(task, n, k), b);
        }
        const float w_scale = task.dequantize ? 1.0F : task.w_scales[block * task.outputs + n];
        out = arith::fma(task.x_scales[block * task.tokens + t] * w_scale, b, out);
      }
      if (task.out_f32 != nullptr) {
        task.out_f32[t * task.out_stride + n] = out;
      } else {
        task.out_bf16[t * task.out_stride + n] = arith::f32_to_bf16(out);
      }
    }
  }
}

void pack_keys(const float* rows, int64_t count, float* panels) {
  for (int64_t j = 0; j < (count + kKeyPanel - 1) / kKeyPanel * kKeyPanel; ++j) {
    float* const key = panels + j / kKeyPanel * kKeyPanelFloats + j % kKeyPanel;
    for (int d = 0; d < kIndexKeyDim; ++d) key[d * kKeyPanel] = j < count ? rows[j * kIndexKeyDim + d] : 0.0F;
  }
}

void scores(const ScoreTask& task) {
  float* const t = task.scratch;
  float key[kIndexKeyDim];
  for (int64_t j = 0; j < task.count; ++j) {
    const float* const column = task.keys + j / kKeyPanel * kKeyPanelFloats + j % kKeyPanel;
    for (int d = 0; d < kIndexKeyDim; ++d) key[d] = column[d * kKeyPanel];
    for (int h = 0; h < task.heads; ++h) {
      float dot = dot32(task.query + h * kIndexKeyDim, key, kIndexKeyDim);
      if (task.bf16_steps) dot = to_bf16_value(dot);
      t[h] = dot > 0.0F ? dot : 0.0F;
      if (task.bf16_steps) t[h] = to_bf16_value(t[h] * task.weights[h]);
    }
    const float sum =
        task.bf16_steps ? to_bf16_value(sum32(t, task.heads)) : dot32(t, task.weights, task.heads);
    task.scores[j] = task.key_scales != nullptr ? sum * task.key_scales[j] : sum;
  }
}

/// sum32 of e over keys [begin, end), each at its list index counted from `first`.
float listed_sum(const AttentionTask& task, const float* e, int64_t begin, int64_t end, int64_t first) {
  float a[kLanes] = {};
  for (int64_t j = begin; j < end; ++j) {
    float& lane = a[(task.index[j] - first) % kLanes];
    lane = lane + e[j];
  }
  return lane_tree(a);
}

struct SoftmaxState {
  float m;
  float sum;
  float* z;  ///< [count]
  float* o;  ///< [512]
};

void two_pass(const AttentionTask& task, SoftmaxState& s) {
  for (int64_t j = 0; j < task.count; ++j) s.m = max_of(s.m, s.z[j]);
  for (int64_t j = 0; j < task.count; ++j) s.z[j] = arith::exp(s.z[j] - s.m);
  s.sum = listed_sum(task, s.z, 0, task.count, 0);
  for (int64_t j = 0; j < task.count; ++j) {
    for (int c = 0; c < kKeyDim; ++c) s.o[c] = arith::fma(s.z[j], task.keys[j][c], s.o[c]);
  }
}

void online64(const AttentionTask& task, SoftmaxState& s) {
  constexpr int64_t kBlock = 64;
  for (int64_t first = 0, begin = 0; first < task.list_length; first += kBlock) {
    int64_t end = begin;
    while (end < task.count && task.index[end] < first + kBlock) ++end;
    float m = s.m;
    for (int64_t j = begin; j < end; ++j) m = max_of(m, s.z[j]);
    const float f = s.m == minus_infinity() ? 0.0F : arith::exp(s.m - m);
    for (int64_t j = begin; j < end; ++j) s.z[j] = arith::exp(s.z[j] - m);
    s.sum = arith::fma(s.sum, f, listed_sum(task, s.z, begin, end, first));
    for (int c = 0; c < kKeyDim; ++c) {
      float o = s.o[c] * f;
      for (int64_t j = begin; j < end; ++j) o = arith::fma(to_bf16_value(s.z[j]), task.keys[j][c], o);
      s.o[c] = o;
    }
    s.m = m;
    begin = end;
  }
}

void attention(const AttentionTask& task) {
  float* const query = task.scratch;
  SoftmaxState s{0.0F, 0.0F, query + 2 * kKeyDim, query + kKeyDim};
  for (int h = 0; h < task.heads; ++h) {
    widen_bf16(task.query + h * kKeyDim, kKeyDim, query);
    s.m = task.sink_in_max ? max_of(minus_infinity(), task.sink[h]) : minus_infinity();
    s.sum = 0.0F;
    for (int c = 0; c < kKeyDim; ++c) s.o[c] = 0.0F;
    for (int64_t j = 0; j < task.count; ++j) {
      s.z[j] = dot32(query, task.keys[j], kKeyDim) * arith::from_bits(0x3D3504F3U);
    }
    if (task.online64) {
      online64(task, s);
    } else {
      two_pass(task, s);
    }
    const float den = s.sum + arith::exp(task.sink[h] - s.m);
    for (int c = 0; c < kKeyDim; ++c) task.out[h * kKeyDim + c] = arith::f32_to_bf16(s.o[c] / den);
    task.lse[h] = s.m + arith::log(s.sum);
  }
}

/// One chain: what a scalar fold can do.
double fma_rounds(int64_t rounds) {
  float chain = 1.0F;
  for (int64_t i = 0; i < 16 * rounds; ++i) {
    chain = arith::fma(chain, 0.999F, 0.001F);
    asm volatile("" : "+m"(chain));
  }
  return 32.0 * static_cast<double>(rounds);
}

constexpr Kernels kTable{
    dot32,         sum32,       widen_bf16, round_bf16,   decode_e4m3, decode_e2m1, amax,
    encode_e4m3,   encode_e2m1, scale_row,  squares_bf16, rotate,      hadamard128, pool,
    online_update, linear,      pack_keys,  scores,       attention,   fma_rounds,
};

}  // namespace

const Kernels* scalar_kernels() {
  return &kTable;
}

}  // namespace dsv4::reference::simd
