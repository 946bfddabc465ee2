/// Matrix instructions on one tile: d [64][8] = c + a [64][k] b [8][k]^T, k in steps of one instruction, 128
/// threads. The operands of a step lie in shared memory as [rows][32 bytes].
#pragma once

#include <cstdint>

#include "arith/config.hpp"

namespace dsv4::gpu::probe {

constexpr int kTileRows = 64;
constexpr int kTileColumns = 8;
constexpr int kStepBytes = 32;  // K 16 of two bytes, K 32 of one

/// wgmma m64n8, operands in shared memory without swizzle: core matrices of 8 rows of 16 bytes, the two of a
/// row group adjacent (128 bytes), row groups 256 bytes apart.
template <bool kBf16>
struct Wgmma {
  static constexpr const char* kName = kBf16 ? "wgmma m64n8k16 bf16" : "wgmma m64n8k32 e4m3";

  __device__ static int place(int row, int byte) {
    return (row / 8 * 2 + byte / 16) * 128 + row % 8 * 16 + byte % 16;
  }
  __device__ static std::uint64_t descriptor(const void* shared) {
    const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(shared));
    return (address & 0x3FFFFU) >> 4 | std::uint64_t{128 >> 4} << 16 | std::uint64_t{256 >> 4} << 32;
  }
  __device__ static void step(const unsigned char* a, const unsigned char* b, float (&d)[4]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const std::uint64_t da = descriptor(a);
    const std::uint64_t db = descriptor(b);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if constexpr (kBf16) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "l"(da), "l"(db)
          : "memory");
    } else {
      asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "l"(da), "l"(db)
                   : "memory");
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#else
    (void)a, (void)b, (void)d;
#endif
  }
};

/// mma.sync m16n8: each of the four warps takes 16 rows.
template <bool kBf16>
struct Mma {
  static constexpr const char* kName = kBf16 ? "mma.sync m16n8k16 bf16" : "mma.sync m16n8k32 e4m3";

  __device__ static int place(int row, int byte) { return row * kStepBytes + byte; }
  __device__ static std::uint32_t word(const unsigned char* base, int row, int byte) {
    return *reinterpret_cast<const std::uint32_t*>(base + place(row, byte));
  }
  __device__ static void step(const unsigned char* a, const unsigned char* b, float (&d)[4]) {
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x % 32U);
    const int row = static_cast<int>(threadIdx.x / 32U) * 16 + lane / 4;
    const int byte = lane % 4 * 4;
    const std::uint32_t a0 = word(a, row, byte), a1 = word(a, row + 8, byte), a2 = word(a, row, byte + 16),
                        a3 = word(a, row + 8, byte + 16);
    const std::uint32_t b0 = word(b, lane / 4, byte), b1 = word(b, lane / 4, byte + 16);
    if constexpr (kBf16) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
    }
  }
};

/// One block a tile.
template <class Instruction, class Code>
__global__ void tile_kernel(const Code* a, const Code* b, const float* c, float* d, int steps) {
  __shared__ alignas(128) unsigned char shared_a[kTileRows * kStepBytes];
  __shared__ alignas(128) unsigned char shared_b[kTileColumns * kStepBytes];
  const std::size_t tile = blockIdx.x;
  const int row_bytes = steps * kStepBytes;
  const auto* const left = reinterpret_cast<const unsigned char*>(a) + tile * kTileRows * row_bytes;
  const auto* const right = reinterpret_cast<const unsigned char*>(b) + tile * kTileColumns * row_bytes;
  // Both instructions keep the result alike: rows lane / 4 and + 8 of the warp's 16, columns 2 (lane % 4).
  const int lane = static_cast<int>(threadIdx.x % 32U);
  const int row = static_cast<int>(threadIdx.x / 32U) * 16 + lane / 4;
  const std::size_t at = (tile * kTileRows + row) * kTileColumns + lane % 4 * 2;
  float sum[4] = {c[at], c[at + 1], c[at + 8 * kTileColumns], c[at + 8 * kTileColumns + 1]};
  for (int s = 0; s < steps; ++s) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kStepBytes; i += 128)
      shared_a[Instruction::place(i / kStepBytes, i % kStepBytes)] =
          left[i / kStepBytes * row_bytes + s * kStepBytes + i % kStepBytes];
    for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kStepBytes; i += 128)
      shared_b[Instruction::place(i / kStepBytes, i % kStepBytes)] =
          right[i / kStepBytes * row_bytes + s * kStepBytes + i % kStepBytes];
    Instruction::step(shared_a, shared_b, sum);
  }
  d[at] = sum[0];
  d[at + 1] = sum[1];
  d[at + 8 * kTileColumns] = sum[2];
  d[at + 8 * kTileColumns + 1] = sum[3];
}

}  // namespace dsv4::gpu::probe
