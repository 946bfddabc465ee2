/// A float vector of the target's natural width on compiler vector extensions, for the tiles of hot kernels.
///
/// Included by objects compiled for different instruction sets: everything has internal linkage inside the
/// namespace DSV4_ISA. fma rounds once on every target.
#pragma once

#include <stdint.h>

#include "arith/fma.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef DSV4_ISA
#define DSV4_ISA generic
#endif

/// Always inlined: a kernel's tile must live in registers.
#define DSV4_TILE [[gnu::always_inline, maybe_unused]] static inline

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kTileRows = 12;  // 24 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kTileRows = 6;  // 12 accumulators of 16 registers
#elif defined(__aarch64__)
constexpr int kWidth = 4;
constexpr int kTileRows = 12;
#else
constexpr int kWidth = 4;
constexpr int kTileRows = 4;
#endif
/// A tile is kTileRows rows of two vectors.
constexpr int kTileColumns = 2 * kWidth;

typedef float Vec __attribute__((vector_size(4 * kWidth)));
typedef float VecAt __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));

DSV4_TILE Vec load(const float* p) {
  return *reinterpret_cast<const VecAt*>(p);
}
DSV4_TILE void store(float* p, Vec v) {
  *reinterpret_cast<VecAt*>(p) = v;
}

constexpr int kCacheLine = 64;

/// Asks for the line of p in the first cache, or in the second. A hint: any address will do.
DSV4_TILE void fetch(const void* p) {
  __builtin_prefetch(p, 0, 3);
}
DSV4_TILE void fetch_far(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

DSV4_TILE Vec broadcast(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__)
  return _mm256_set1_ps(x);
#elif defined(__aarch64__)
  return vdupq_n_f32(x);
#else
  return Vec{x, x, x, x};
#endif
}

DSV4_TILE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return Vec{arith::fma(a[0], b[0], c[0]), arith::fma(a[1], b[1], c[1]), arith::fma(a[2], b[2], c[2]),
             arith::fma(a[3], b[3], c[3])};
#endif
}

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
