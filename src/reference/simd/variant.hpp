/// The body of an object compiled for one instruction set: its table of kernels. DSV4_ISA names the
/// namespace.
#pragma once

#include "reference/simd/attention_kernel.hpp"
#include "reference/simd/score_kernel.hpp"

namespace dsv4::reference::simd {
inline namespace DSV4_ISA {

/// Keeps a vector in a register that the compiler cannot see through: it may not merge equal chains.
#if defined(__AVX512F__)
#define DSV4_OPAQUE(x) asm volatile("" : "+v"(x))
#elif defined(__x86_64__)
#define DSV4_OPAQUE(x) asm volatile("" : "+x"(x))
#elif defined(__aarch64__)
#define DSV4_OPAQUE(x) asm volatile("" : "+w"(x))
#else
#define DSV4_OPAQUE(x) asm volatile("" : "+m"(x))
#endif

/// Chains of dependent fmas, enough of them to fill every pipe and few enough for the registers.
constexpr int kChains = kTileRows == 6 ? 12 : 16;

[[maybe_unused]] static double fma_rounds(int64_t rounds) {
  Vec chain[kChains];
  Vec factor = broadcast(0.999F);
  Vec addend = broadcast(0.001F);
  DSV4_OPAQUE(factor);
  DSV4_OPAQUE(addend);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    chain[i] = broadcast(1.0F);
    DSV4_OPAQUE(chain[i]);
  }
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      chain[i] = fma(chain[i], factor, addend);
      DSV4_OPAQUE(chain[i]);
    }
  }
  return 2.0 * static_cast<double>(rounds) * kChains * kWidth;
}

static const Kernels kTable{
    dot32,         sum32,       widen_bf16, round_bf16,   decode_e4m3, decode_e2m1, amax,
    encode_e4m3,   encode_e2m1, scale_row,  squares_bf16, rotate,      hadamard128, pool,
    online_update, linear,      pack_keys,  scores,       attention,   fma_rounds,
};

}  // namespace DSV4_ISA
}  // namespace dsv4::reference::simd
