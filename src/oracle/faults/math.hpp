/// The arithmetic of faults: literal loops over src/arith, written apart from every engine, so that what a
/// fault puts in place of a stage's result is right but for the fault. Sections are those of
/// docs/numerics.md; rows are bf16 bits unless named.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/geometry.hpp"
#include "model/inputs.hpp"

namespace dsv4::oracle::faults {

/// Section 5.
float dot32(std::span<const float> x, std::span<const float> y);
float sum32(std::span<const float> x);

std::vector<float> widened(std::span<const std::uint16_t> row);

/// Section 8; no weight: empty.
std::vector<std::uint16_t> rms_norm(std::span<const std::uint16_t> row, std::span<const std::uint16_t> weight,
                                    float eps);

/// Section 9: angles of one position, and how the 64 values of a row's rotated part make pairs.
struct Angles {
  std::array<float, 32> cos;
  std::array<float, 32> sin;
};
Angles angles_at(const Geometry& geometry, bool yarn, std::int64_t position);
enum class Pairing : std::uint8_t { neighbours, halves };
void rotate(std::span<std::uint16_t> row64, const Angles& angles, bool inverse = false,
            Pairing pairing = Pairing::neighbours);

/// Section 10, [128].
void hadamard(std::span<std::uint16_t> row);

/// Section 4, and what may be wrong with it.
struct Quantiser {
  bool round_down = false;  ///< the scale's exponent is the next lower one
  bool unrounded = false;   ///< values are divided by amax / M itself; the rounded scale is stored
  bool clamp = true;        ///< without: what does not fit becomes NaN
};
void quantise_e4m3(std::span<const std::uint16_t> row, int block, const Quantiser& how,
                   std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);
/// e2m1 has no NaN that a cast could make: without a clamp it saturates all the same.
void quantise_e2m1(std::span<const std::uint16_t> row, const Quantiser& how, std::span<std::uint8_t> codes,
                   std::span<std::uint8_t> scales);

/// Section 6: rows [first, first + count) of a matrix times one row, each result rounded to bf16. FP8
/// matrices read the row as codes (section 4, blocks of 128), unless `as_bf16`, which reads both as bf16.
std::vector<std::uint16_t> linear(const Matrix& matrix, std::int64_t first, std::int64_t count,
                                  std::span<const std::uint16_t> row, bool as_bf16 = false);

/// Section 12.4: one window of rows, ascending; kv and score' are [d].
struct PoolRow {
  const float* kv;
  const float* score;
};
void pool(std::span<const PoolRow> rows, std::span<float> pooled);

/// The 512 values of a KV row as in Write::bytes.
std::vector<float> decoded_kv_row(std::span<const std::byte> row);

}  // namespace dsv4::oracle::faults
