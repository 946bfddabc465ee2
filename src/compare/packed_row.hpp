/// Where a byte of a packed row or page stands: code, RoPE, scale, spare. A page holds the values of all its
/// rows, then their scales; a row by itself (`page_bytes`) is a page of one row. Byte constants:
/// model/layout.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/stage.hpp"

namespace dsv4::compare {

enum class PackedPart : std::uint8_t { codes, rope, scales, spare, behind };
std::string_view name(PackedPart part);

struct PackedByte {
  PackedPart part{};
  std::int64_t row = 0;
  std::int64_t first = 0;  ///< first element of the part that the byte belongs to: dim, RoPE dim or block
};

struct PackedRow {
  enum class Kind : std::uint8_t { kv, index_fp8, index_fp4 };
  Kind kind{};
  int value_bytes = 0;
  int scale_bytes = 0;
  int block = 0;          ///< codes a scale
  std::int64_t rows = 1;  ///< of the page

  /// By the length of a row by itself: 584, 132 or 68; empty for any other.
  static std::optional<PackedRow> of_row_bytes(std::int64_t bytes);
  PackedRow with_rows(std::int64_t page_rows) const;

  PackedByte locate(std::int64_t byte) const;
  /// Byte offset of a row's code pair or code, RoPE element, or scale within the page.
  std::int64_t code_byte(std::int64_t row, std::int64_t dim) const;
  std::int64_t rope_byte(std::int64_t row, std::int64_t dim) const;
  std::int64_t scale_byte(std::int64_t row, std::int64_t index) const;
};

/// Codes a scale of a quantised tensor (docs/numerics.md section 4): 64 for KV, 128 for activations and FP8
/// index rows, 32 for FP4.
int block_size(TensorId codes, DType dtype);

/// The tensor of scales beside a tensor of codes and the reverse; empty for others.
std::optional<TensorId> scales_of(TensorId codes);
std::optional<TensorId> codes_of(TensorId scales);

}  // namespace dsv4::compare
