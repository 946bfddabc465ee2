/// What FlashMLA's sparse kernels do with a block of 64 keys and 64 heads: scores, online softmax, values.
/// docs/kernel-models.md, FlashMLA. Built with fast-math: every float32 operation flushes subnormals.
/// Logarithms and maxima are in powers of two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

inline constexpr int kFlashBlock = 64;  ///< keys of a block, and heads of a tile
inline constexpr int kFlashDim = 512;   ///< of a key; all of it is the value, too
inline constexpr float kFlashFirstMax = -1e30F;

/// 64 keys, row and column wise. An invalid key is all zeros and its score minus infinity.
struct FlashKeys {
  std::array<std::uint16_t, kFlashBlock * kFlashDim> rows{};     ///< bf16 [64, 512]
  std::array<std::uint16_t, kFlashDim * kFlashBlock> columns{};  ///< bf16 [512, 64]
  std::array<bool, kFlashBlock> valid{};

  std::uint16_t* row(int key) { return rows.data() + std::size_t(key) * kFlashDim; }
  /// Fills `columns` from `rows`.
  void transpose();
};

using FlashScores = std::array<float, kFlashBlock * kFlashBlock>;                 ///< [head, key]
using FlashProbabilities = std::array<std::uint16_t, kFlashBlock * kFlashBlock>;  ///< bf16 [head, key]
using FlashLanes =
    std::array<float, 4>;  ///< sums of a row over the columns 8t + 2l and 8t + 2l + 1 of lane l

/// Scores of the first `heads` heads of a tile, q bf16 [heads, 512]: tensor-core steps in ascending order, or
/// dims 256..511 first. Masked. A head does not see the others: those left out change nothing.
void flash_scores(const std::uint16_t* q, int heads, const FlashKeys& keys, bool upper_dims_first,
                  FlashScores& scores);

/// max(m, rn(largest score * scale)).
float flash_max(const float* scores, float scale, float m);

/// What the compiler made of exp2(score * scale - m): one fma (nvcc 13.0.88), or a product and a difference.
enum class FlashExponent : std::uint8_t { fused, rounded };
/// p[64] of one head.
void flash_exp(const float* scores, float scale, float m, FlashExponent exponent, float* p);

/// How a lane adds its sixteen p: one after the other, or the two neighbours first.
enum class FlashRowSum : std::uint8_t { serial, pairs };
/// lanes = fma(lanes, rescale, sum of p).
void flash_add_row(const float* p, float rescale, FlashRowSum order, FlashLanes& lanes);
/// Sum over the quad.
float flash_row_sum(FlashLanes lanes);

/// p rounded to bf16.
void flash_round(const float* p, std::uint16_t* rounded);

/// o [heads, 512], `count` columns from `first` on: o += p . values, four steps of 16 keys.
void flash_values(const FlashProbabilities& p, int heads, const FlashKeys& keys, int first, int count,
                  float* o);

/// Heads of the tile that begins with head `first` which are not padding; `live` 0: all are.
int flash_live_heads(int first, int live);

/// 1 / (sum + 2^(sink - m)), 0 where sum is 0. sink is already in powers of two; -inf for none.
float flash_output_scale(float sum, float sink, float m);
/// The sink in powers of two; null: -inf.
float flash_sink(const float* sink);

}  // namespace dsv4::kernels
