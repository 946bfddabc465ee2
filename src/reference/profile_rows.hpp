/// Rows of the caches as profiles store them, from f32 values: the row before its last rounding where a
/// profile does not round it to bf16, else bf16 values widened (docs/numerics.md 4, 17).
///
///   KV      as kv_row.hpp; without a quantiser 512 values of two bytes (bf16 or f16)
///   index   as kv_row.hpp, the FP8 scale any float32 under index_scale f32; without a quantiser 128 values
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/layout.hpp"
#include "model/profile.hpp"
#include "reference/row_store.hpp"

namespace dsv4::reference {

/// The row's bytes. `codes` [448] and `scales` [7] are written unless the cache is plain.
void store_kv_row(const float* row, KvCache cache, std::uint8_t* codes, std::uint8_t* scales,
                  std::byte* bytes);

/// The row in a slot as f32 [512].
void load_kv_row(const RowStore& store, std::int64_t slot, KvCache cache, float* out);

/// How index vectors are quantised.
struct IndexForm {
  IndexCache cache = IndexCache::fp8;
  IndexScale scale = IndexScale::ue8m0;
  Fp4Rule fp4_rule = Fp4Rule::nearest_even;

  bool plain() const { return layout::plain(cache); }
  bool fp4() const { return cache == IndexCache::fp4; }
};
IndexForm index_form(const Profile& profile);

/// An index vector [128] quantised: one code a byte, and its scales: ue8m0 bytes (fp4) or one f32 (fp8).
struct IndexCodes {
  std::array<std::uint8_t, kIndexDim> codes;
  std::array<std::uint8_t, 4> scale_bytes;
  float scale;
};
IndexCodes quantize_index(const float* row, const IndexForm& form);

/// The bytes of an index row.
void store_index_row(const IndexCodes& row, const IndexForm& form, std::byte* bytes);

/// Plain rows: n values as bf16 or f16, and back.
void store_plain(const float* values, std::int64_t n, bool f16, std::byte* bytes);
void load_plain(const std::byte* bytes, std::int64_t n, bool f16, float* values);

}  // namespace dsv4::reference
