/// Turning stored bits into what a person reads: single elements of every dtype, cache rows, whole pages, and
/// range figures of a tensor. For display and reports; no engine uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "model/stage.hpp"
#include "model/tensor.hpp"

namespace dsv4::io {

/// One element: raw bits and the number they stand for (exact in float64 for every dtype).
struct Element {
  std::uint64_t bits = 0;
  std::string hex;     ///< "0x3f80", as wide as the stored element
  double value = 0.0;  ///< integers too
  std::string text;    ///< shortest decimal that reads back as float32; "nan", "inf", "-inf", "-0"
};
Element decode(const Tensor& tensor, std::int64_t element);

/// A KV row of 584 bytes (values then scale bytes).
struct KvRow {
  std::array<std::uint8_t, kNopeDim> codes;            ///< e4m3
  std::array<std::uint16_t, kRopeDim> rope;            ///< bf16 bits
  std::array<std::uint8_t, layout::kKvScales> scales;  ///< ue8m0
  std::uint8_t spare = 0;
  std::array<float, kHeadDim> values;  ///< dequantised, RoPE dims last
};
KvRow decode_kv_row(std::span<const std::byte> row);

/// An index row: 132 bytes (e4m3, one f32 scale) or 68 bytes (e2m1, four ue8m0 scales).
struct IndexRow {
  bool fp4 = false;
  std::array<std::uint8_t, kIndexDim> codes;  ///< one code a byte, also when packed in the row
  std::vector<float> scales;                  ///< 1 or 4
  std::vector<std::uint32_t> scale_bits;      ///< f32 bits, or ue8m0 bytes
  std::array<float, kIndexDim> values;
};
IndexRow decode_index_row(std::span<const std::byte> row);

/// How the rows of a page cache look where a profile keeps values without codes and scales (axes kv_cache and
/// index_cache).
struct PlainRows {
  bool f16 = false;  ///< else bf16
  int row_bytes = 0;
};
std::optional<PlainRows> plain_rows(const Profile& profile, Cache cache);
/// Two bytes a value; throws UsageError if the row has another size.
std::vector<float> decode_plain_row(std::span<const std::byte> row, const PlainRows& form);
std::vector<std::byte> plain_page_row(std::span<const std::byte> page, int rows, int offset,
                                      const PlainRows& form);

/// Gathers row `offset` (value bytes then scale bytes) out of a page that holds `rows` rows.
std::vector<std::byte> kv_page_row(std::span<const std::byte> page, int rows, int offset);
std::vector<std::byte> index_page_row(std::span<const std::byte> page, int rows, int offset, bool fp4);

/// Range and saturation of one tensor.
struct Figures {
  std::int64_t elements = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  std::int64_t zero = 0;
  std::int64_t saturated = 0;  ///< codes at the largest magnitude of e4m3 (448) or e2m1 (6)
  std::int64_t subnormal = 0;  ///< non-zero below the dtype's smallest normal
  double minimum = 0.0;        ///< of finite elements; 0 when there is none
  double maximum = 0.0;
  double rms = 0.0;                              ///< of finite elements, float64
  std::optional<std::int64_t> first_non_finite;  ///< element index
};
Figures figures(const Tensor& tensor);

}  // namespace dsv4::io
