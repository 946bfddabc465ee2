/// Key rows on their way from pages to shared memory: bytes first, then f32 values (docs/numerics.md 11, 15).
#pragma once

#include <cuda_pipeline_primitives.h>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "gpu/attention_core.cuh"

namespace dsv4::gpu {

inline constexpr int kRawBytes = 592;  // of a row in shared memory: 576 value bytes, 8 scale bytes, a gap
inline constexpr int kRawVectors = layout::kKvValueBytes / 16;

/// Starts the copy of vectors [first, first + count) of 16 value bytes, and of the scales, of `keys` rows; kLanes
/// neighbouring threads take a row. Rows in pages at odd addresses are copied byte by byte. Follow it by
/// __pipeline_commit.
template <int kThreads, int kLanes>
__device__ __forceinline__ void bring_rows(std::uint8_t* raw, const KeyPlace* places, int keys, int first, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int key = static_cast<int>(threadIdx.x) / kLanes; key < keys; key += kThreads / kLanes) {
    const KeyPlace place = places[key];
    if (place.values == nullptr) continue;
    for (int vector = lane; vector <= count; vector += kLanes) {
      const bool scales = vector == count;
      const std::uint8_t* from = scales ? place.scales : place.values + 16 * (first + vector);
      std::uint8_t* to = raw + key * kRawBytes + (scales ? layout::kKvValueBytes : 16 * (first + vector));
      const auto address = reinterpret_cast<std::uintptr_t>(from);
      if (scales && address % 8 == 0) {
        __pipeline_memcpy_async(to, from, 8);
      } else if (!scales && address % 16 == 0) {
        __pipeline_memcpy_async(to, from, 16);
      } else {
        for (int b = 0; b < (scales ? 8 : 16); ++b) to[b] = from[b];
      }
    }
  }
}

/// Four e4m3 values, two of one scale and two of another.
__device__ __forceinline__ float4 scaled(std::uint32_t codes, float low, float high) {
  float v[4];
  arith::e4m3x4_to_f32(codes, v);
  return make_float4(v[0] * low, v[1] * low, v[2] * high, v[3] * high);
}

__device__ __forceinline__ float raw_scale(const std::uint8_t* raw, int block) {
  return arith::ue8m0_to_f32(raw[layout::kKvValueBytes + block]);
}

}  // namespace dsv4::gpu
