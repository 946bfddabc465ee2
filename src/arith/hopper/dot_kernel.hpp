/// The vector form of a tensor-core step, docs/hopper.md 4: one output a lane. The body of objects compiled
/// for different instruction sets: everything has internal linkage inside the namespace DSV4_ISA.
///
/// A product of two significands is exact in float (16 bits), and so is its multiplication by the power of
/// two that aligns it; the conversion to an integer cuts toward zero. Lanes that need more than this
/// (infinities, NaN, a subnormal accumulator or result, a sum beyond 31 bits) are marked and left to the
/// scalar form.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arith/hopper/dot.hpp"
#include "arith/hopper/dot_task.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define DSV4_TILE [[gnu::always_inline, maybe_unused]] static inline

namespace dsv4::arith::hopper {
inline namespace DSV4_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
static_assert(kLanes <= kMostLanes);

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IVec __attribute__((vector_size(4 * kLanes)));
typedef float VecAt __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t IVecAt __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

DSV4_TILE Vec load(const float* p) {
  return *reinterpret_cast<const VecAt*>(p);
}
DSV4_TILE IVec load(const int32_t* p) {
  return *reinterpret_cast<const IVecAt*>(p);
}
DSV4_TILE void store(float* p, Vec v) {
  *reinterpret_cast<VecAt*>(p) = v;
}
DSV4_TILE IVec bits_of(Vec v) {
  return reinterpret_cast<IVec>(v);
}
DSV4_TILE Vec floats_of(IVec v) {
  return reinterpret_cast<Vec>(v);
}
DSV4_TILE IVec max_of(IVec a, IVec b) {
  return a > b ? a : b;
}
/// Bit i: lane i of a comparison's result is set.
DSV4_TILE unsigned set_lanes(IVec mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask));
#elif defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask)));
#else
  unsigned set = 0;
  for (int lane = 0; lane < kLanes; ++lane) set |= (mask[lane] != 0 ? 1U : 0U) << lane;
  return set;
#endif
}

/// What the two formats differ in.
struct Bf16Format {
  using Code = uint16_t;
  static constexpr int kStep = 16;
  static constexpr DotRule kRule = kBf16Rule;
  DSV4_TILE float scalar(const Code* a, const Code* b, float c) { return dot_accumulate_bf16(a, b, c); }
  /// Significand with its sign, exponent, and whether the value is an infinity or NaN.
  DSV4_TILE bool split(Code code, float& significand, int32_t& exponent) {
    const uint32_t magnitude = code & 0x7FFFU;
    const int32_t field = static_cast<int32_t>(magnitude >> 7);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-7F;
    const float normal = from_bits(0x3F800000U | (magnitude & 0x7FU) << 16);
    significand = from_bits(to_bits(field == 0 ? subnormal : normal) | (code & 0x8000U) << 16);
    exponent = magnitude == 0U ? kZeroExponent : (field == 0 ? -126 : field - 127);
    return field == 255;
  }
};
struct E4m3Format {
  using Code = uint8_t;
  static constexpr int kStep = 32;
  static constexpr DotRule kRule = kE4m3Rule;
  DSV4_TILE float scalar(const Code* a, const Code* b, float c) { return dot_accumulate_e4m3(a, b, c); }
  DSV4_TILE bool split(Code code, float& significand, int32_t& exponent) {
    const uint32_t magnitude = code & 0x7FU;
    const int32_t field = static_cast<int32_t>(magnitude >> 3);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-3F;
    const float normal = from_bits(0x3F800000U | (magnitude & 0x7U) << 20);
    significand =
        from_bits(to_bits(field == 0 ? subnormal : normal) | static_cast<uint32_t>(code & 0x80U) << 24);
    exponent = magnitude == 0U ? kZeroExponent : (field == 0 ? -6 : field - 7);
    return magnitude == 0x7FU;
  }
};

/// The significand moved to the common exponent, as an integer cut toward zero. Below 2^-60 nothing is left.
DSV4_TILE IVec aligned(Vec significand, IVec below, int fraction_bits) {
  const IVec distance = max_of(below, IVec{} - 60);
  return __builtin_convertvector(significand * floats_of((distance + (fraction_bits + 127)) << 23), IVec);
}

/// One step for kLanes columns. `bad`: lanes whose result is not to be used.
template <class Format>
DSV4_TILE Vec step(const float* sa, const int32_t* ea, const float* sb, const int32_t* eb, Vec c,
                   unsigned& bad) {
  constexpr int kFraction = Format::kRule.fraction_bits;
  const IVec c_bits = bits_of(c);
  const IVec c_field = (c_bits >> 23) & 0xFF;
  const IVec c_zero = (c_bits & 0x7FFFFFFF) == 0;
  IVec odd = (c_field == 0xFF) | ((c_field == 0) & ~c_zero);
  const IVec c_exponent = c_zero ? IVec{} + kZeroExponent : c_field - 127;

  IVec exponents[Format::kStep];
  IVec top = max_of(c_exponent, IVec{} + Format::kRule.minimum_exponent);
#pragma GCC unroll 32
  for (int i = 0; i < Format::kStep; ++i) {
    exponents[i] = load(eb + i * kLanes) + ea[i];
    top = max_of(top, exponents[i]);
  }
  const Vec c_significand = floats_of((c_bits & static_cast<int32_t>(0x807FFFFFU)) | 0x3F800000);
  IVec half[2] = {aligned(c_significand, c_exponent - top, kFraction), IVec{}};  // each half fits 31 bits
#pragma GCC unroll 32
  for (int i = 0; i < Format::kStep; ++i) {
    half[i / (Format::kStep / 2)] += aligned(load(sb + i * kLanes) * sa[i], exponents[i] - top, kFraction);
  }
  typedef uint32_t UVec __attribute__((vector_size(4 * kLanes)));
  const IVec sum = reinterpret_cast<IVec>(reinterpret_cast<UVec>(half[0]) + reinterpret_cast<UVec>(half[1]));
  odd |= (~(half[0] ^ half[1]) & (half[0] ^ sum)) < 0;
  const IVec negative = sum < 0;
  IVec magnitude =
      reinterpret_cast<IVec>(reinterpret_cast<UVec>(sum ^ negative) - reinterpret_cast<UVec>(negative));
  // Cut to 24 bits: the nearest float, less one unit where it lies above.
  magnitude = magnitude >= (1 << 30) ? magnitude & ~0x7F : magnitude;
  const Vec nearest = __builtin_convertvector(magnitude, Vec);
  const IVec above = __builtin_convertvector(nearest, IVec) > magnitude;
  const IVec cut = bits_of(nearest) + above;
  const IVec shift = top - kFraction;
  const IVec field = (cut >> 23) + shift;  // biased exponent of the result
  const IVec zero = magnitude == 0;
  odd |= ~zero & ((field < 1) | (field > 254));
  bad = set_lanes(odd);
  const IVec kept = (cut + (shift << 23)) & ~((1 << (23 - Format::kRule.output_fraction_bits)) - 1);
  return floats_of((zero ? IVec{} : kept) | (negative & static_cast<int32_t>(0x80000000U)));
}

template <class Format>
[[maybe_unused]] static void repair(const typename Format::Code* a, const typename Format::Code* b,
                                    int64_t b_stride, int64_t count, unsigned lanes, Vec before, Vec& after) {
  typename Format::Code x[Format::kStep] = {};
  memcpy(x, a, static_cast<size_t>(count) * sizeof *a);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1U) == 0U) continue;
    typename Format::Code y[Format::kStep] = {};
    memcpy(y, b + lane * b_stride, static_cast<size_t>(count) * sizeof *b);
    after[lane] = Format::scalar(x, y, before[lane]);
  }
}

/// Splits one row of k codes, padded with zeros to whole steps. `stride`: distance of neighbours in the
/// output.
template <class Format>
[[maybe_unused]] static void split_row(const typename Format::Code* codes, int64_t k, int64_t padded,
                                       int64_t stride, float* significands, int32_t* exponents,
                                       uint8_t* special) {
  for (int64_t step = 0; step < padded; step += Format::kStep) {
    float s[Format::kStep] = {};
    int32_t e[Format::kStep];
    typename Format::Code chunk[Format::kStep] = {};
    const int64_t count = k - step < Format::kStep ? k - step : Format::kStep;
    memcpy(chunk, codes + step, static_cast<size_t>(count) * sizeof *codes);
    int any = 0;
    for (int i = 0; i < Format::kStep; ++i) any |= Format::split(chunk[i], s[i], e[i]) ? 1 : 0;
    special[step / Format::kStep] |= static_cast<uint8_t>(any);
    for (int i = 0; i < Format::kStep; ++i) {
      significands[(step + i) * stride] = s[i];
      exponents[(step + i) * stride] = e[i];
    }
  }
}

/// Chains of all rows of the block with the columns of one panel.
template <class Format>
[[maybe_unused]] static void panel(const DotTask<typename Format::Code>& t, int64_t column, int64_t columns,
                                   int64_t padded) {
  constexpr unsigned kAll = (1U << kLanes) - 1U;
  const int64_t steps = padded / Format::kStep;
  memset(t.panel_special, 0, static_cast<size_t>(steps));
  for (int64_t i = 0; i < padded * kLanes; ++i) t.panel_significands[i] = 0.0F;
  for (int64_t i = 0; i < padded * kLanes; ++i) t.panel_exponents[i] = kZeroExponent;
  const auto* const b = t.b + column * t.b_stride;
  for (int64_t lane = 0; lane < columns; ++lane) {
    split_row<Format>(b + lane * t.b_stride, t.k, padded, kLanes, t.panel_significands + lane,
                      t.panel_exponents + lane, t.panel_special);
  }
  const unsigned used = columns == kLanes ? kAll : (1U << columns) - 1U;
  for (int64_t row = 0; row < t.m; ++row) {
    float* const c = t.c + row * t.c_stride + column;
    float lanes[kLanes] = {};
    for (int64_t lane = 0; lane < columns; ++lane) lanes[lane] = c[lane];
    Vec sum = load(lanes);
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t at = s * Format::kStep;
      unsigned bad = 0;
      Vec next = step<Format>(t.row_significands + row * padded + at, t.row_exponents + row * padded + at,
                              t.panel_significands + at * kLanes, t.panel_exponents + at * kLanes, sum, bad);
      if ((t.row_special[row * steps + s] | t.panel_special[s]) != 0) bad = kAll;
      bad &= used;
      if (bad != 0U) {
        const int64_t count = t.k - at < Format::kStep ? t.k - at : Format::kStep;
        repair<Format>(t.a + row * t.a_stride + at, b + at, t.b_stride, count, bad, sum, next);
      }
      sum = next;
    }
    store(lanes, sum);
    for (int64_t lane = 0; lane < columns; ++lane) c[lane] = lanes[lane];
  }
}

template <class Format>
[[maybe_unused]] static void run(const DotTask<typename Format::Code>& t) {
  const int64_t padded = (t.k + Format::kStep - 1) / Format::kStep * Format::kStep;
  const int64_t steps = padded / Format::kStep;
  memset(t.row_special, 0, static_cast<size_t>(t.m * steps));
  for (int64_t row = 0; row < t.m; ++row) {
    split_row<Format>(t.a + row * t.a_stride, t.k, padded, 1, t.row_significands + row * padded,
                      t.row_exponents + row * padded, t.row_special + row * steps);
  }
  for (int64_t column = 0; column < t.n; column += kLanes)
    panel<Format>(t, column, t.n - column < kLanes ? t.n - column : kLanes, padded);
}

static const DotKernels kTable{run<Bf16Format>, run<E4m3Format>};

}  // namespace DSV4_ISA
}  // namespace dsv4::arith::hopper
