/// Rows of the caches as bytes (docs/numerics.md 4, 11, 12.7, 13 and the page layouts).
///
///   KV         448 e4m3 codes | 64 bf16 (little endian) | 7 ue8m0 scales, one 0
///   FP8 index  128 e4m3 codes | one f32 scale
///   FP4 index  64 bytes, even element in the low nibble | 4 ue8m0 scales
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/layout.hpp"
#include "model/profile.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/row_store.hpp"

namespace dsv4::reference {

/// Quantises a bf16 row [512]: codes [448], scales [7], and the row's bytes [584].
void encode_kv_row(const std::uint16_t* row, QuantFloor floor, std::uint8_t* codes, std::uint8_t* scales,
                   std::byte* bytes);

/// The row in a slot as f32 [512]: dequantised codes, then the RoPE dims.
void decode_kv_row(const RowStore& store, std::int64_t slot, float* out);

/// Scales of one index vector of 128: one for FP8, four for FP4.
constexpr int index_scales(IndexCache format) {
  return format == IndexCache::fp4 ? 4 : 1;
}

/// Quantises a bf16 index vector [128] by section 4: one code a byte [128], ue8m0 scales [1] or [4].
void quantize_index(const std::uint16_t* row, IndexCache format, std::uint8_t* codes, std::uint8_t* scales);

/// 2^(b - 127) of each scale byte: how FP8 index scales are stored and published.
void widen_scales(const std::uint8_t* scales, std::int64_t count, float* out);

/// The bytes of an index row (132 or 68) from its codes and scale bytes.
void encode_index_row(const std::uint8_t* codes, const std::uint8_t* scales, IndexCache format,
                      std::byte* bytes);

/// The row in a slot as f32 [128]: FP8 values of the codes, with *scale set; FP4 dequantised (scale
/// untouched).
void decode_index_row(const RowStore& store, std::int64_t slot, IndexCache format, float* out, float* scale);

/// Distinct rows of a KV cache, each decoded once however often lists name it.
class DecodedRows {
 public:
  explicit DecodedRows(const RowStore& store, KvCache cache = KvCache::e4m3_amax_floor)
      : store_(store), cache_(cache) {}

  /// Index of a slot's row; the same for the same slot. Throws InternalError for a slot outside the cache.
  std::size_t add(std::int64_t slot);
  /// Decodes what add() collected; afterwards row() is valid.
  void decode();
  const float* row(std::size_t index) const { return values_.data() + index * kHeadDim; }

 private:
  const RowStore& store_;
  KvCache cache_;
  std::vector<std::int64_t> slots_;
  std::vector<float> values_;
  std::unordered_map<std::int64_t, std::vector<std::int32_t>> units_;  ///< index of each row of a unit, or -1
  std::int64_t last_unit_ = -1;  ///< lists run along units: most look-ups stay in the last one
  std::vector<std::int32_t>* last_ = nullptr;
};

}  // namespace dsv4::reference
