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
  for (int j = 0; j < J; ++j) x[j] = round_bf16(x[j] * g * arith::bf16_to_f32(weight[lane + 32 * j]));
}

/// Rotation of the last 64 elements (section 9), rounded to bf16. Each lane makes one pair's angle; neighbours hold
/// the two elements of a pair.
template <int J>
__device__ __forceinline__ void rope_row(float (&x)[J], std::int32_t position, const Frequencies& frequencies, int lane) {
  const arith::SinCos turn = arith::sin_cos(static_cast<float>(position) * frequencies.f[lane]);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    float& v = x[J - 2 + k];
    const float c = __shfl_sync(0xFFFFFFFFU, turn.cos, 16 * k + lane / 2);
    const float s = __shfl_sync(0xFFFFFFFFU, turn.sin, 16 * k + lane / 2);
    const float other = __shfl_xor_sync(0xFFFFFFFFU, v, 1) * s;
    v = round_bf16(arith::fma(v, c, lane % 2 == 0 ? -other : other));
  }
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
#pragma unroll
  for (int h = 1; h < 4; h *= 2) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((j & h) != 0) continue;
      const float a = x[j];
      const float b = x[j + h];
      x[j] = a + b;
      x[j + h] = a - b;
    }
  }
#pragma unroll
  for (float& v : x) v = round_bf16(v * kHadamardScale);
}

/// Writes bytes of shared memory, which begin at a multiple of 16, in the widest words that address and length
/// allow. One warp; put __syncwarp between the stores to shared memory and this.
__device__ __forceinline__ void put_bytes(void* to, const void* from, int bytes, int lane) {
  const auto in_words = [&](auto word) {
    using Word = decltype(word);
    for (int i = lane; i < bytes / static_cast<int>(sizeof(Word)); i += 32) {
      static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
    }
  };
  const std::uintptr_t fit = reinterpret_cast<std::uintptr_t>(to) | static_cast<std::uintptr_t>(bytes);
  if (fit % 16 == 0) {
    in_words(uint4{});
  } else if (fit % 8 == 0) {
    in_words(uint2{});
  } else if (fit % 4 == 0) {
    in_words(std::uint32_t{});
  } else {
    in_words(std::uint8_t{});
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

__device__ inline float larger(float a, float b) { return b > a ? b : a; }

}  // namespace dsv4::gpu
