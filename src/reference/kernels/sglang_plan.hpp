/// Plans and state memory that SGLang's compressor kernels share. Contract: sglang.md sections 8.2, 8.3, 9.3.
///
/// A plan row is what the launcher reads from memory, little endian; an unused row is all ones in its first
/// word.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {

inline constexpr std::uint32_t kSglangInvalid = 0xFFFFFFFFU;

/// 16 bytes, one a request: decoding.
struct SglangDecodePlan {
  std::uint32_t seq_len;      ///< position of the token + 1
  std::int32_t write_row;     ///< state row that takes the token
  std::int32_t page_before;   ///< state page of the previous window (ratio 4; online: the slot that is read)
  std::int32_t page_current;  ///< state page of the window that holds the token
};

/// 16 bytes, one an entry that closes (online: one a segment of a 128-token chunk).
struct SglangCompressPlan {
  std::uint32_t seq_len;      ///< position of the closing (online: last) token + 1
  std::uint16_t ragged_id;    ///< its row in the input
  std::uint16_t count;        ///< leading window rows that lie in the state; online: tokens of the segment
  std::int32_t page_before;   ///< online: slot that is written, and read when page_current is negative
  std::int32_t page_current;  ///< online: slot that is read
};

/// 8 bytes, one a row that goes to the state after pooling.
struct SglangWritePlan {
  std::uint32_t ragged_id;
  std::int32_t write_row;
};
static_assert(sizeof(SglangDecodePlan) == 16 && sizeof(SglangCompressPlan) == 16 &&
              sizeof(SglangWritePlan) == 8);

/// State rows [rows, width] of raw kv and scores: float32 verbatim, or bf16, rounded when written and widened
/// when read.
struct SglangState {
  std::variant<std::span<float>, std::span<std::uint16_t>> rows;
  std::int64_t width = 0;

  float read(std::int64_t row, std::int64_t column) const;
  void write(std::int64_t row, const float* values) const;
  /// What `value` becomes by a passage through this memory.
  float passed(float value) const;
};

/// The rows of `plans` copied from the input [tokens, width] to the state.
void sglang_write_state(std::span<const SglangWritePlan> plans, const float* input, const SglangState& state);

}  // namespace dsv4::kernels
