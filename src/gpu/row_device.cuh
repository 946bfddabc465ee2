/// Row operations of one warp on a row that it holds in registers: element lane + 32 j in x[j], J = width / 32.
/// The same rules as in row_math.cuh, for kernels that do several steps at once.
#pragma once

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/fma.hpp"
#include "arith/sin_cos.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/row_math.cuh"
#include "gpu/sums.cuh"

namespace dsv4::gpu {

inline constexpr float kAmaxFloorE4m3 = 1e-4F;  // 0x38D1B717
inline constexpr float kAmaxFloorE2m1 = 0x1.8p-124F;  // 6 * 2^-126
inline constexpr float kHadamardScale = 0.088388346F;  // 0x3DB504F3
static_assert(__builtin_bit_cast(std::uint32_t, kAmaxFloorE4m3) == 0x38D1B717U);
static_assert(__builtin_bit_cast(std::uint32_t, kAmaxFloorE2m1) == 0x01C00000U);
static_assert(__builtin_bit_cast(std::uint32_t, kHadamardScale) == 0x3DB504F3U);

__device__ inline float round_bf16(float x) { return arith::bf16_to_f32(arith::f32_to_bf16(x)); }

/// All of them; the bits of a NaN mean nothing, so what is published goes through bf16_bits.
template <int N>
__device__ __forceinline__ void round_bf16(float (&x)[N]) {
  static_assert(N % 2 == 0);
#pragma unroll
  for (int i = 0; i < N; i += 2) arith::round_to_bf16(x[i], x[i + 1]);
}

/// The bits of a float that is a bf16 value, NaN as the one that digests know.
__device__ __forceinline__ std::uint16_t bf16_bits(float x) {
  return static_cast<std::uint16_t>(x == x ? arith::to_bits(x) >> 16 : arith::kNanBits >> 16);
}

/// rn(1 / rn(sqrt(v))), section 7.
__device__ inline float reciprocal_root(float v) { return __fdiv_rn(1.0F, __fsqrt_rn(v)); }

/// RMS norm of section 8, rounded to bf16.
template <int J>
__device__ __forceinline__ void norm_row(float (&x)[J], const std::uint16_t* weight, float eps, int lane) {
  float a = 0.0F;
#pragma unroll
  for (int j = 0; j < J; ++j) a = arith::fma(x[j], x[j], a);
  const float g = reciprocal_root(__fdiv_rn(warp_tree(a), static_cast<float>(32 * J)) + eps);
#pragma unroll
  for (int j = 0; j < J; ++j) x[j] = x[j] * g * arith::bf16_to_f32(weight[lane + 32 * j]);
  round_bf16(x);
}

/// Rotation of the last 64 elements (section 9), rounded to bf16. Each lane makes one pair's angle; neighbours hold
/// the two elements of a pair.
template <int J>
__device__ __forceinline__ void rope_row(float (&x)[J], std::int32_t position, const Frequencies& frequencies, int lane) {
  const arith::SinCos turn = arith::sin_cos(static_cast<float>(position) * frequencies.f[lane]);
  float turned[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float v = x[J - 2 + k];
    const float c = __shfl_sync(0xFFFFFFFFU, turn.cos, 16 * k + lane / 2);
    const float s = __shfl_sync(0xFFFFFFFFU, turn.sin, 16 * k + lane / 2);
    const float other = __shfl_xor_sync(0xFFFFFFFFU, v, 1) * s;
    turned[k] = arith::fma(v, c, lane % 2 == 0 ? -other : other);
  }
  round_bf16(turned);
  x[J - 2] = turned[0];
  x[J - 1] = turned[1];
}

/// The last levels of a Hadamard rotation (section 10), among the values of a lane, its factor, and its rounding to bf16.
template <int N>
__device__ __forceinline__ void hadamard_in_lane(float (&x)[N]) {
#pragma unroll
  for (int h = 1; h < N; h *= 2) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if ((j & h) != 0) continue;
      const float a = x[j];
      const float b = x[j + h];
      x[j] = a + b;
      x[j + h] = a - b;
    }
  }
#pragma unroll
  for (float& v : x) v = v * kHadamardScale;
  round_bf16(x);
}

/// Hadamard rotation of 128 elements (section 10), rounded to bf16.
__device__ __forceinline__ void hadamard_row(float (&x)[4], int lane) {
#pragma unroll
  for (int h = 1; h < 32; h *= 2) {
#pragma unroll
    for (float& v : x) {
      const float other = __shfl_xor_sync(0xFFFFFFFFU, v, h);
      v = (lane & h) == 0 ? v + other : other - v;
    }
  }
  hadamard_in_lane(x);
}

/// Writes kBytes of shared memory, which begin at a multiple of 16, in words that address and length allow: kLanes
/// neighbouring threads do, each with its `lane`. Put __syncwarp between the stores to shared memory and this.
template <class Word, int kBytes, int kLanes = 32>
__device__ __forceinline__ void put_words(void* to, const void* from, int lane) {
  static_assert(kBytes % sizeof(Word) == 0);
#pragma unroll
  for (int i = lane; i < kBytes / static_cast<int>(sizeof(Word)); i += kLanes) {
    static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
  }
}

/// The same to a place in a page, whose address may be odd.
template <class Word, int kBytes, int kLanes = 32>
__device__ __forceinline__ void put_in_page(void* to, const void* from, int lane) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Word) == 0) {
    put_words<Word, kBytes, kLanes>(to, from, lane);
  } else {
    put_words<std::uint8_t, kBytes, kLanes>(to, from, lane);
  }
}

/// The largest over a warp of floats that are not negative and not NaN: they order as their bits.
__device__ __forceinline__ float warp_amax(float amax) {
  return arith::from_bits(__reduce_max_sync(0xFFFFFFFFU, arith::to_bits(amax)));
}

/// Scale byte of a block (section 4) from the largest magnitude in each lane.
__device__ __forceinline__ std::uint8_t block_scale(float amax, float floor, float largest) {
  amax = warp_amax(amax);
  return arith::ue8m0_scale_for(amax > floor ? amax : floor, largest);
}

/// Of a number and a magnitude or NaN, which does not count.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }

}  // namespace dsv4::gpu
